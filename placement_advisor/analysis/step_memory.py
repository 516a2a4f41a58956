"""What the devices of a simulated step hold, and how large a batch fits.

A bound is cheap: each tensor with a buffer of its own as long as someone wants it. A peak is
replayed, one device at a time, as `simulator.memory` has it. At another batch the step is replayed
in the same order, with tensors whose sizes follow from those at two batches: on a line, or, where
they grow faster than the batch, on a part that grows with it and one that grows with its square.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.cost.batch_memory import fit_batch_memory
from placement_advisor.graph.op import Role
from placement_advisor.simulator.arrays import most_at_once
from placement_advisor.simulator.memory import Constants, DeviceFlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Device
    from placement_advisor.simulator.arrays import ScheduleArrays
    from placement_advisor.simulator.schedule import PeakMemory

    Ints = NDArray[np.int64]


# Peaks are greatest of several lines, so one through two of them is not followed far beyond.
_FAR = 1.5


class BusiestDevice(NamedTuple):
    """The most that a device of a step holds, and the most samples for each device that fit.

    ``largest_batch`` is None where memory is not known, or is not what limits the batch.
    """

    peak_bytes: int
    largest_batch: int | None


class SizedOps(NamedTuple):
    """The ops of a step, by number, with so many samples on each device."""

    batch: int
    ops: Sequence[Op]


class OpBytes(NamedTuple):
    """The bytes that an op holds for a whole step, and those that it makes."""

    stays: int
    makes: int


def bytes_of_ops(graph: OpGraph) -> dict[str, OpBytes]:
    """Return what each op of a graph holds at most, by name; constants not counted."""
    found = {}
    for op in graph.ops:
        if op.role is Role.CONSTANT:
            continue
        stays, makes = op.parameter_bytes, sum(size or 0 for size in op.output_bytes)
        # Variables stay, and so does the batch; an update may take a new buffer for its variable.
        if op.role is Role.UPDATE and op.variable is not None and op.variable in graph:
            stays += graph.op(op.variable).parameter_bytes
        if op.role is Role.INPUT:
            stays, makes = stays + makes, 0
        found[op.name] = OpBytes(stays, makes)
    return found


class StepMemory:
    """The memory of the devices of a step."""

    def __init__(
        self,
        step: ScheduleArrays,
        ops: SizedOps,
        op_bytes: Callable[[], Sequence[OpBytes]],
        most_bytes: int,
        constants: Constants,
        devices: Sequence[Device],
    ) -> None:
        """Take the ops of the graph that was simulated, as `DeviceFlow` does.

        ``op_bytes`` has what each holds at most; ``most_bytes`` is at least the sum, for a quick
        answer.
        """
        self._step, self._ops, self._constants, self._devices = step, ops, constants, devices
        self._of_ops, self._most_bytes = op_bytes, most_bytes

    @classmethod
    def of_graph(
        cls, step: ScheduleArrays, graph: OpGraph, batch: int, devices: Sequence[Device]
    ) -> StepMemory:
        """Return that of a step of a graph as it is."""
        op_bytes = bytes_of_ops(graph)
        ops = SizedOps(batch, step.arrays.ops)
        most_bytes = sum(map(sum, op_bytes.values()))
        return cls(
            step,
            ops,
            lambda: [op_bytes[op.name] for op in ops.ops],
            most_bytes,
            Constants(graph),
            devices,
        )

    def fits(self) -> bool:
        """Return whether each device has the memory for what it holds; if unknown, it has."""
        return all(
            device.memory_bytes is None or self._holds_at_most(number, device.memory_bytes)
            for number, device in enumerate(self._devices)
        )

    def peak(self, number: int) -> PeakMemory:
        """Return the peak of one of the devices."""
        return self._flow(number).peak()

    def busiest(self, other: SizedOps) -> BusiestDevice:
        """Return what the device holds that holds most, as far as bounds tell.

        ``other`` are the same ops with other samples.
        """
        bounds: dict[tuple[int, int], tuple[int, int]] = {}
        for number in range(len(self._devices)):
            # Of devices that do the same, one will do.
            load = self._stays_bytes(number), self._made_bytes(number)
            if load not in bounds:
                bounds[load] = self._bound_bytes(number), number
        _, most = max(bounds.values(), key=lambda each: (each[0], -each[1]))
        flow = self._flow(most)
        peak_bytes = flow.peak().size_bytes
        memory_bytes = self._devices[most].memory_bytes
        if memory_bytes is None:
            return BusiestDevice(peak_bytes, None)

        def held_bytes(batch: int) -> int:
            return flow.resized(_at(batch, self._ops, other)).peak().size_bytes

        return BusiestDevice(
            peak_bytes, _largest_batch(self._ops.batch, peak_bytes, memory_bytes, held_bytes)
        )

    @cached_property
    def _op_bytes(self) -> tuple[Ints, Ints]:
        stays, makes = np.array(self._of_ops(), np.int64).reshape(-1, 2).T
        return stays, makes

    def _holds_at_most(self, number: int, memory_bytes: int) -> bool:
        step = self._step
        # Some ops run on a device once for each of several others.
        times = int(np.bincount(step.op[step.place == number]).max(initial=0))
        copied_bytes = int(step.held_bytes[step.held_place == number].sum())
        if times * self._most_bytes + copied_bytes + self._constants.size_bytes <= memory_bytes:
            return True
        most = self._stays_bytes(number) + self._made_bytes(number)
        return (
            most <= memory_bytes
            or self._bound_bytes(number) <= memory_bytes
            or self.peak(number).size_bytes <= memory_bytes
        )

    def _flow(self, number: int) -> DeviceFlow:
        return DeviceFlow(self._step, number, self._ops.ops, self._constants)

    def _stays_bytes(self, number: int) -> int:
        runs = self._step.op[self._step.place == number]
        return self._constants.size_bytes + int(self._op_bytes[0][runs].sum())

    def _made_bytes(self, number: int) -> int:
        return int(sum(sizes.sum() for sizes, _ in self._held(number)))

    def _bound_bytes(self, number: int) -> int:
        """Return what a device holds if each tensor has a buffer of its own while it is wanted."""
        sizes, spans_ns = zip(*self._held(number), strict=True)
        most = most_at_once(np.concatenate(spans_ns), np.concatenate(sizes))
        return self._stays_bytes(number) + most

    def _held(self, number: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield sizes of what a device holds, and from when to when."""
        step = self._step
        runs, tensors = step.place == number, step.held_place == number
        # While an op runs it has all that it makes, also what nobody reads.
        yield self._op_bytes[1][step.op[runs]], step.run_ns[runs]
        yield step.held_bytes[tensors], step.held_ns[tensors]


def _largest_batch(
    batch: int, peak_bytes: int, memory_bytes: int, held_bytes: Callable[[int], int]
) -> int | None:
    peaks = {batch: peak_bytes}
    # What fits if all grew with the batch. What does not grow leaves room for more.
    further = max(1, memory_bytes * batch // max(1, peak_bytes))
    while True:
        if further not in peaks:
            peaks[further] = held_bytes(further)
        if further > batch and peaks[further] > memory_bytes:
            # It grows faster than the batch, so no line says where it is full.
            sizes = range(batch, further)
            return sizes[bisect_right(sizes, memory_bytes, key=held_bytes) - 1]
        largest = fit_batch_memory(peaks).largest_batch(memory_bytes)
        if largest is None or largest <= _FAR * further:
            return largest
        further = largest


def _at(batch: int, ops: SizedOps, other: SizedOps) -> list[Op]:
    """Return ops at another batch, with sizes that follow from those at two batches."""
    share = (batch - ops.batch) / (other.batch - ops.batch)

    def size(one: int | None, another: int | None) -> int | None:
        if one is None or another is None:
            return None
        each, of_other = one / ops.batch, another / other.batch
        # What grows faster than the batch has more for each sample.
        if (of_other - each) * (other.batch - ops.batch) > 0:
            return round((each + (of_other - each) * share) * batch)
        return max(0, round(one + (another - one) * share))

    return [
        one
        if one.output_bytes == another.output_bytes
        else one._replace(output_bytes=tuple(map(size, one.output_bytes, another.output_bytes)))
        for one, another in zip(ops.ops, other.ops, strict=True)
    ]
