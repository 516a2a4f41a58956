"""The small graphs that a calibration runs.

Each function returns what builds the graph on a bench and gives the ops with which its step ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.machine.calibration import REFERENCE_WIDTH

if TYPE_CHECKING:
    from placement_advisor.tf.run.bench import Bench, Build


def nothing(device: str) -> Build:
    """Start and end a step."""

    def build(bench: Bench) -> list[Any]:
        with bench.on(device):
            return [tf.no_op()]

    return build


def both(one: Build, other: Build) -> Build:
    """Run two graphs in one step."""
    return lambda bench: [*one(bench), *other(bench)]


def tiny_ops(device: str, count: int) -> Build:
    """Run ops that compute next to nothing, one after the other."""

    def build(bench: Bench) -> list[Any]:
        tensor = bench.held(device, [4])
        with bench.on(device):
            for _ in range(count):
                tensor = tf.raw_ops.AddV2(x=tensor, y=tensor)
        return [tensor.op]

    return build


def products(device: str, count: int) -> Build:
    """Multiply matrices, one product after the other."""

    def build(bench: Bench) -> list[Any]:
        matrix = bench.held(device, [REFERENCE_WIDTH, REFERENCE_WIDTH])
        with bench.on(device):
            return [_product(matrix, matrix, count).op]

    return build


def _product(tensor: Any, matrix: Any, count: int) -> Any:
    for _ in range(count):
        tensor = tf.linalg.matmul(tensor, matrix)
    return tensor


def sums(device: str, size_bytes: int, count: int) -> Build:
    """Add a tensor to another one again and again."""

    def build(bench: Bench) -> list[Any]:
        summand = bench.held(device, [size_bytes // 4])
        tensor = summand
        with bench.on(device):
            for _ in range(count):
                tensor = tf.raw_ops.AddV2(x=tensor, y=summand)
        return [tensor.op]

    return build


def fan(ends: tuple[str, str], size_bytes: int, count: int) -> Build:
    """Send tensors that are all ready at once."""
    source, target = ends

    def build(bench: Bench) -> list[Any]:
        there = []
        for _ in range(count):
            tensor = bench.held(source, [size_bytes // 4])
            with bench.on(target):
                there.append(tf.identity(tensor).op)
        return there

    return build


def chain(ends: tuple[str, str], size_bytes: int, hops: int) -> Build:
    """Send one tensor to and fro; each end reads it all, which its caches do not hold."""

    def build(bench: Bench) -> list[Any]:
        tensor = bench.held(ends[0], [size_bytes // 4])
        for hop in range(hops):
            with bench.on(ends[(hop + 1) % 2]):
                tensor = tf.raw_ops.AddV2(x=tensor, y=tensor)
        return [tensor.op]

    return build


def errands(ends: tuple[str, str], size_bytes: int, count: int) -> Build:
    """Send a tensor again and again, each time after a message of no bytes has come back."""
    source, target = ends

    def build(bench: Bench) -> list[Any]:
        tensor = bench.held(source, [size_bytes // 4])
        back: list[Any] = []
        for _ in range(count):
            with bench.on(source), tf.control_dependencies(back):
                sent = tf.identity(tensor)
            with bench.on(target):
                back = [tf.identity(sent).op]
        with bench.on(source), tf.control_dependencies(back):
            return [tf.no_op()]

    return build


def errand_after_rest(first: str, other: str, busy: int) -> Build:
    """Time an errand to ``other`` after ``first`` has computed, and another one at once.

    Returns the two times, in seconds; clocks are read on ``first``.
    """

    def build(bench: Bench) -> list[Any]:
        small = bench.held(first, [1])
        done = products(first, busy)(bench)
        with bench.on(first), tf.control_dependencies(done):
            read = [tf.timestamp()]
        for _ in range(2):
            with bench.on(first), tf.control_dependencies(read[-1:]):
                sent = tf.identity(small)
            with bench.on(other):
                seen = tf.identity(sent)
            with bench.on(first), tf.control_dependencies([seen]):
                read.append(tf.timestamp())
        with bench.on(first):
            return [read[1] - read[0], read[2] - read[1]]

    return build


def answered(first: str, other: str, count: int, busy: int) -> Build:
    """Compute on ``first`` after a small tensor has come from ``other``, which computes as well."""

    def build(bench: Bench) -> list[Any]:
        ends = products(other, busy)(bench)
        small = bench.held(other, [1])
        matrix = bench.held(first, [REFERENCE_WIDTH, REFERENCE_WIDTH])
        with bench.on(first):
            with tf.control_dependencies([tf.identity(small)]):
                begun = tf.identity(matrix)
            return [*ends, _product(begun, matrix, count).op]

    return build
