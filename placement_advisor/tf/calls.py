"""The modules whose functions children are called for, free of TensorFlow.

The command's process must not import them: it calls their functions by name. The type checker sees
the modules themselves, so it checks each call against the function's signature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.tf import split_step as splitter
    from placement_advisor.tf.run import mirrored, native_step, runner
    from placement_advisor.tf.trace import tracer
else:
    from placement_advisor.processes.calls import RemoteModule

    mirrored = RemoteModule("placement_advisor.tf.run.mirrored")
    native_step = RemoteModule("placement_advisor.tf.run.native_step")
    runner = RemoteModule("placement_advisor.tf.run.runner")
    splitter = RemoteModule("placement_advisor.tf.split_step")
    tracer = RemoteModule("placement_advisor.tf.trace.tracer")

__all__ = ["mirrored", "native_step", "runner", "splitter", "tracer"]
