"""How long kernels take that only move memory: elementwise ops, softmax, layer normalisation.

Model: an elementwise kernel draws a fixed share of the nominal bandwidth, whatever it computes; the
share depends a little on how many tensors it reads beside each other. Softmax and layer
normalisation read each row more than once. What they read again comes from the caches, as long as
the rows in flight fit into them; a row costs something on its own, and threads that find no element
in a row's last step are idle.

Left out: the level-2 cache between kernels: tensors of the record are larger than it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.cost.gpu.tiles import FLOAT32_BYTES

if TYPE_CHECKING:
    from placement_advisor.cost.gpu.tiles import Figures
    from placement_advisor.machine.gpu_facts import GpuFacts

# Up to this length, one warp holds a row of softmax in registers; beyond, a block of threads reads
# it again and again (PyTorch, PersistentSoftmax.cuh and SoftMax.cu).
HELD_ROW = 1024
# What a thread reads at once.
VECTOR = 4
# A layer normalisation has this many threads for a row (PyTorch, layer_norm_kernel.cu).
NORMALISING_THREADS = 128
# Threads of a block at least.
WARP = 32
# Threads that a multiprocessor holds.
RESIDENT_THREADS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConstants:
    """The share of the nominal bandwidth that an elementwise kernel draws.

    ``record_launch_s``: what launching took in the record; no part of the kernel's time.
    """

    bandwidth_share: float
    record_launch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxConstants:
    """How many times as long softmax takes as its tensor, read and written at nominal bandwidth.

    Chips differ less in that than in how it compares to plain copies.

    ``held``: with rows of up to `HELD_ROW` elements. ``again``: what reading longer ones again
    adds. ``idle``: what threads without an element in a row's last step add to these, for the
    square of their share of those with one. ``row_elements``: elements that a row costs on its own.
    ``record_launch_s``: what launching took in the record; no part of the kernel's time.
    """

    held: float
    again: float
    idle: float
    row_elements: float
    record_launch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisationConstants:
    """How many times as long layer normalisation takes as a copy of its tensor.

    ``held``: with rows that the caches hold until they are read again. ``again``: what reading them
    from memory again adds; the caches hold ``cache_reach`` times the level-2 cache. ``idle``: what
    threads without an element in a row's last step add, for their share of those with one.
    ``row_elements``: elements that a row costs on its own. ``record_launch_s``: what launching took
    in the record; no part of the kernel's time.
    """

    held: float
    again: float
    cache_reach: float
    idle: float
    row_elements: float
    record_launch_s: float


def elementwise_s(
    elements: Figures, inputs: int, gpu: GpuFacts, constants: StreamConstants
) -> Figures:
    """Return the seconds of kernels that read so many tensors and write one."""
    moved = FLOAT32_BYTES * elements * (inputs + 1)
    return moved / (gpu.memory_bandwidth_bytes_per_s * constants.bandwidth_share)


def softmax_s(
    rows: Figures, length: Figures, gpu: GpuFacts, constants: SoftmaxConstants
) -> Figures:
    """Return the seconds of softmax over rows."""
    # A power of two, such that half of a row or more is read in vectors.
    threads = 2 ** np.ceil(np.log2(np.maximum(np.floor(length / VECTOR) / 2, WARP)))
    steps = np.ceil(length / (VECTOR * threads))
    idle = constants.idle * (steps * VECTOR * threads / length - 1) ** 2
    held = constants.held + constants.row_elements / length
    passes = np.where(length <= HELD_ROW, held, held + constants.again + idle)
    return _copies_s(rows, length, gpu.memory_bandwidth_bytes_per_s) * np.maximum(passes, 1)


def layer_norm_s(
    rows: Figures,
    length: Figures,
    gpu: GpuFacts,
    constants: NormalisationConstants,
    bandwidth: float,
) -> Figures:
    """Return the seconds of layer normalisation; ``bandwidth`` is what copies reach, in bytes/s."""
    in_flight = gpu.multiprocessors * RESIDENT_THREADS / NORMALISING_THREADS
    overflow = in_flight * length * FLOAT32_BYTES / (constants.cache_reach * gpu.l2_bytes)
    missed = 1 / (1 + overflow**-4)
    steps = np.ceil(length / (VECTOR * NORMALISING_THREADS))
    idle = constants.idle * (steps * VECTOR * NORMALISING_THREADS / length - 1)
    passes = constants.held + constants.again * missed + idle + constants.row_elements / length
    return _copies_s(rows, length, bandwidth) * np.maximum(passes, 1)


def _copies_s(rows: Figures, length: Figures, bandwidth: float) -> Figures:
    """Return the seconds of reading and writing the tensor once."""
    return 2 * FLOAT32_BYTES * rows * length / bandwidth
