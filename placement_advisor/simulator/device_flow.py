"""What one device sees of a simulated step: its ops, and copies that reach or leave it.

What holds memory of a device is there or comes there, so a replay of one device needs no more than
that, however many devices a step has.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.graph.op import CONTROL_PORT, Role
from placement_advisor.simulator.arrays import UNKNOWN
from placement_advisor.simulator.memory import peaks_of
from placement_advisor.simulator.tensor_flow import Crossing, Run, StepFlow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.outline import Outline
    from placement_advisor.simulator.peak import PeakMemory

    Ints = NDArray[np.int64]

_HERE, _ELSEWHERE = range(2)


class ReadConstant(NamedTuple):
    """An op, by its number, that reads a port of a constant."""

    constant: Op
    port: int
    reader: int


class Constants:
    """The constants of a graph."""

    def __init__(self, graph: OpGraph) -> None:
        """Take the graph that is simulated."""
        self._graph = graph

    @cached_property
    def size_bytes(self) -> int:
        """The bytes of all of them."""
        sizes = [op.output_bytes for op in self._graph.ops if op.role is Role.CONSTANT]
        return sum(size or 0 for made in sizes for size in made)

    @cached_property
    def reads(self) -> Sequence[ReadConstant]:
        """Who reads them, among the ops that are placed."""
        ops = [op for op in self._graph.ops if op.role is not Role.CONSTANT]
        number = {op.name: i for i, op in enumerate(ops)}
        return [
            ReadConstant(self._graph.op(edge.producer), edge.port, number[edge.consumer])
            for edge in self._graph.edges
            if edge.producer not in number and not edge.is_control
        ]


class DeviceFlow:
    """The flow of a step through one of its places."""

    def __init__(self, step: Outline, place: int, ops: Sequence[Op], constants: Constants) -> None:
        """Take the ops of the graph that is simulated, by number, constants not counted."""
        arrays = step.arrays
        is_here = step.place == place
        tensor = np.repeat(np.arange(len(arrays.producer)), arrays.readers)
        reader = arrays.reader.astype(np.int64)
        read = is_here[reader] & (arrays.port[tensor] != CONTROL_PORT)
        tensor, reader = tensor[read], reader[read]
        is_touching = (step.source == place) | (step.target == place)
        copies = np.flatnonzero(is_touching & (arrays.port[step.copied] != CONTROL_PORT))
        is_seen = is_here.copy()
        is_seen[arrays.producer[tensor]] = True
        seen = np.flatnonzero(is_seen)
        number = np.cumsum(is_seen) - 1
        self._source = step.op[seen]
        readers = defaultdict(list)
        for i, source in enumerate(self._source.tolist()):
            if is_here[seen[i]]:
                readers[source].append(i)
        read_constants = [each for each in constants.reads if each.reader in readers]
        found = {each.constant.name: each.constant for each in read_constants}
        self._constants = tuple(found.values())
        place_of = {name: len(seen) + i for i, name in enumerate(found)}
        edges = list(
            zip(
                number[arrays.producer[tensor]].tolist(),
                number[reader].tolist(),
                arrays.port[tensor].tolist(),
                strict=True,
            )
        )
        edges += [
            (place_of[each.constant.name], here, each.port)
            for each in read_constants
            for here in readers[each.reader]
        ]
        device_of: list[int | None] = np.where(is_here[seen], _HERE, _ELSEWHERE).tolist()
        self._flow = StepFlow(
            self._sized(ops),
            2,
            device_of + [None] * len(found),
            edges,
            _runs(step, seen),
            _crossings(step, copies, place, number),
        )

    def peak(self) -> PeakMemory:
        """Return the most that the device holds."""
        return peaks_of(self._flow)[_HERE]

    def resized(self, ops: Sequence[Op]) -> DeviceFlow:
        """Return the flow of ops, by number as before, that make tensors of other sizes."""
        other = copy(self)
        other._flow = self._flow.resized(self._sized(ops))
        return other

    def _sized(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        return (*(ops[source] for source in self._source.tolist()), *self._constants)


def _runs(step: Outline, seen: Ints) -> list[Run]:
    start_ns, end_ns = step.run_ns[seen].T
    order = np.lexsort((end_ns, start_ns))
    rows = start_ns[order].tolist(), end_ns[order].tolist(), order.tolist()
    return [Run(*row) for row in zip(*rows, strict=True)]


def _crossings(step: Outline, copies: Ints, place: int, number: Ints) -> list[Crossing]:
    tensor = step.copied[copies]
    start_ns, end_ns = step.copy_ns[copies].T
    unpacked_ns = step.unpacked_ns[copies]
    columns = (
        number[step.arrays.producer[tensor]],
        step.arrays.port[tensor],
        np.where(step.source[copies] == place, _HERE, _ELSEWHERE),
        np.where(step.target[copies] == place, _HERE, _ELSEWHERE),
        step.copy_bytes[copies],
        np.where(unpacked_ns > 0, end_ns - unpacked_ns, start_ns),
        end_ns,
        unpacked_ns > 0,
    )
    return [
        Crossing(op, port, source, target, None if size == UNKNOWN else size, *rest)
        for op, port, source, target, size, *rest in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
