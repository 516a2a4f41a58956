"""One device of the `workers` testbed: a process that serves TensorFlow's distributed runtime.

Serial on purpose, as a GPU's stream is: one core, and one thread within an op. Ops have several
threads on that core, so that a tensor that is ready to leave can leave while ops compute.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from placement_advisor.machine.calibration import OP_THREADS
from placement_advisor.tf.run import core_clock
from placement_advisor.tf.run.runner import profiler_options, written_profile

# Options of glibc's malloc: one heap for all threads, nothing mapped apart, nothing given back.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MALLOC_OPTIONS = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, (1 << 31) - 1))

_server: Any = None
_profiled = Path()


def serve(addresses: tuple[str, ...], index: int, core: int, carriers: tuple[int, ...]) -> str:
    """Become a device and start its server; return the token of its `core_clock`.

    ``carriers`` are processes whose time counts as its own: they carry what it copies.
    """
    global _server
    become_device(core)
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=OP_THREADS
    )
    # A thread that looks for the next op before it sleeps takes the core from whoever has one.
    config.experimental.disable_thread_spinning = True
    _server = tf.distribute.Server(
        {"worker": list(addresses)},
        job_name="worker",
        task_index=index,
        protocol="grpc",
        config=config,
    )
    return core_clock.offer(carriers)


def _keep_freed_memory() -> None:
    """Let malloc give back nothing, as an accelerator's allocator does.

    Else each large tensor is mapped anew and its pages come from the system one by one, which made
    copies cost twice the time and their length a matter of chance.
    """
    libc = ctypes.CDLL(None)
    for option, value in _MALLOC_OPTIONS:
        libc.mallopt(option, value)


def become_device(core: int) -> None:
    """Pin this process to its core and let it keep memory as an accelerator does."""
    os.sched_setaffinity(0, {core})
    _keep_freed_memory()
    # The allocator of accelerators: it takes memory once, and the profiler sees every piece.
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"


def start_profiler(folder: str) -> None:
    """Begin to profile this worker into a folder."""
    global _profiled
    _profiled = Path(folder)
    tf.profiler.experimental.start(folder, options=profiler_options())


def stop_profiler() -> str:
    """End the profile and write it; return its file.

    Raises:
        TestbedError: the profiler wrote nothing.
    """
    tf.profiler.experimental.stop()
    return written_profile(_profiled)
