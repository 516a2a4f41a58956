"""One device of the testbeds `workers` and `hosts`: a process that serves TensorFlow's runtime.

On a core it is serial on purpose, as a GPU's stream is: one core, and one thread within an op. Ops
have several threads on that core, so that a tensor that is ready to leave can leave while ops
compute. On a GPU it is as TensorFlow has it, with that one GPU to see.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import TestbedError
from placement_advisor.machine.calibration import OP_THREADS
from placement_advisor.machine.this_machine import VISIBLE_GPUS, visible_gpus
from placement_advisor.tf.run import core_clock
from placement_advisor.tf.run.runner import profiler_options, written_profile

if TYPE_CHECKING:
    from placement_advisor.machine.slots import Slot

# Options of glibc's malloc: one heap for all threads, nothing mapped apart, nothing given back.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MALLOC_OPTIONS = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, (1 << 31) - 1))

_server: Any = None
_profiled = Path()


def serve(
    addresses: tuple[str, ...], index: int, slot: Slot, carriers: tuple[int, ...]
) -> str | None:
    """Become a device and start its server; return the token of its `core_clock`.

    ``carriers`` are processes whose time counts as its own: they carry what it copies. The time of
    a GPU's process is not its device's: then there is no token.
    """
    global _server
    become_device(slot)
    config = tf.compat.v1.ConfigProto()
    if slot.is_core:
        config.intra_op_parallelism_threads = 1
        config.inter_op_parallelism_threads = OP_THREADS
        # A thread that looks for the next op before it sleeps takes the core from whoever has one.
        config.experimental.disable_thread_spinning = True
    _server = tf.distribute.Server(
        {"worker": list(addresses)},
        job_name="worker",
        task_index=index,
        protocol="grpc",
        config=config,
    )
    return core_clock.offer(carriers) if slot.is_core else None


def _keep_freed_memory() -> None:
    """Let malloc give back nothing, as an accelerator's allocator does.

    Else each large tensor is mapped anew and its pages come from the system one by one, which made
    copies cost twice the time and their length a matter of chance.
    """
    libc = ctypes.CDLL(None)
    for option, value in _MALLOC_OPTIONS:
        libc.mallopt(option, value)


def become_device(slot: Slot) -> None:
    """Let this process see its GPU alone; or none, and pin it to its core.

    There it keeps memory as an accelerator does.

    Raises:
        TestbedError: TensorFlow cannot use the GPU.
    """
    if not slot.is_core:
        os.environ[VISIBLE_GPUS] = visible_gpus()[slot.number]
        if not tf.config.list_physical_devices("GPU"):
            raise TestbedError(
                "TensorFlow finds no GPU, though the system has some",
                hint="pip install 'tensorflow[and-cuda]' there, or hide GPUs on all hosts: "
                f"{VISIBLE_GPUS}= before `advisor`",
            )
        return
    os.environ[VISIBLE_GPUS] = ""
    os.sched_setaffinity(0, {slot.number})
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
