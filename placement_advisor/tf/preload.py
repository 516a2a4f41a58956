"""Imported once by the fork server, so that every child is forked with all that it needs ready.

Nothing happens here but imports and a look at the registry of kernels: no device is touched and no
thread of TensorFlow's starts, since neither survives a fork.
"""

import contextlib
import gc
import os

from placement_advisor.processes.calls import without_stderr
from placement_advisor.processes.orphan_guard import follow_the_command

follow_the_command()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# A failed import is not hidden: the first child imports again and reports it.
with without_stderr(), contextlib.suppress(Exception):
    import tensorflow as tf

    tf.keras.Model  # noqa: B018 - Keras loads on first use and is most of the import time
    # What nearly every child runs; each would import it for half a second.
    from placement_advisor.tf import split_step  # noqa: F401
    from placement_advisor.tf.run import runner  # noqa: F401
    from placement_advisor.tf.trace import device_kinds, tracer  # noqa: F401

    device_kinds.registered_kernels()
# A child's collector passes over what was there before it, which never becomes garbage.
gc.freeze()
