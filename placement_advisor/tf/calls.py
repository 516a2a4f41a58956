"""The modules whose functions children are called for, free of TensorFlow.

The command's process must not import them, and calls them by name. To the type checker they are the
modules themselves, so that a call is checked against the function's own signature, and its answer
has the function's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.tf import split_step as splitter
    from placement_advisor.tf.run import mirrored, runner
    from placement_advisor.tf.run import native_step as as_is
    from placement_advisor.tf.run import native_step as cluster_tasks
    from placement_advisor.tf.run import native_step as fit_timer
    from placement_advisor.tf.run import native_step as input_timer
    from placement_advisor.tf.run import runner as worker
    from placement_advisor.tf.trace import tracer
else:
    from placement_advisor.processes.calls import RemoteModule

    as_is = RemoteModule("placement_advisor.tf.run.native_step")
    cluster_tasks = RemoteModule("placement_advisor.tf.run.native_step")
    fit_timer = RemoteModule("placement_advisor.tf.run.native_step")
    input_timer = RemoteModule("placement_advisor.tf.run.native_step")
    mirrored = RemoteModule("placement_advisor.tf.run.mirrored")
    runner = RemoteModule("placement_advisor.tf.run.runner")
    splitter = RemoteModule("placement_advisor.tf.split_step")
    tracer = RemoteModule("placement_advisor.tf.trace.tracer")
    worker = RemoteModule("placement_advisor.tf.run.runner")

__all__ = [
    "as_is",
    "cluster_tasks",
    "fit_timer",
    "input_timer",
    "mirrored",
    "runner",
    "splitter",
    "tracer",
    "worker",
]
