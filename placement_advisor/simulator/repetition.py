"""Ops that stand for several like them, on devices one after the other.

Model: of a step that many equal devices share, each does the same; a graph has what the first does,
what one of the others does, and what all share. For the event loop these others are put in beside
each other, as arrays, which is quicker by far than making their ops. Nothing of a simulation is
left out or approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.graph.op import CONTROL_PORT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.simulator.arrays import GraphArrays

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Which ops of a graph there are several ``times``; each has a flag for every op, by number.

    Copies of ``ops`` read those of each other that have the same number, and what is there once.
    Those ``on_next`` are on one device after the other, others all on that of the first copy.
    Copies read one port after the other of what is ``dealt`` out.
    """

    times: int
    ops: Flags
    on_next: Flags
    dealt: Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The ops of a repeated graph: each is copy ``number`` of op ``source`` of the graph."""

    source: Ints
    number: Ints


def copies_of(repetition: Repetition) -> Copies:
    """Return the ops, copies of each beside each other: a topological order as the graph's is."""
    is_repeated = repetition.ops
    source = np.repeat(np.arange(len(is_repeated)), np.where(is_repeated, repetition.times, 1))
    is_first = np.ones(len(source), bool)
    is_first[1:] = source[1:] != source[:-1]
    place = np.arange(len(source))
    return Copies(source=source, number=place - np.maximum.accumulate(np.where(is_first, place, 0)))


def repeated(arrays: GraphArrays, repetition: Repetition, copies: Copies) -> GraphArrays:
    """Return the arrays of the graph with all copies."""
    is_repeated, is_dealt = repetition.ops, repetition.dealt
    first = np.flatnonzero(copies.number == 0)
    tensor = np.repeat(np.arange(len(arrays.producer)), arrays.readers)
    producer, consumer = arrays.producer[tensor], arrays.reader.astype(np.int64)
    times = np.where(is_repeated[producer] | is_repeated[consumer], repetition.times, 1)
    edge = np.repeat(np.arange(len(tensor)), times)
    number = np.arange(len(edge)) - np.repeat(np.cumsum(times) - times, times)
    producer, consumer = producer[edge], consumer[edge]
    port = arrays.port[tensor[edge]]
    is_next = is_dealt[producer] & is_repeated[consumer] & (port != CONTROL_PORT)
    return arrays.with_edges(
        ops=tuple(arrays.ops[source] for source in copies.source.tolist()),
        producer=first[producer] + np.where(is_repeated[producer], number, 0),
        consumer=first[consumer] + np.where(is_repeated[consumer], number, 0),
        port=port + np.where(is_next, number, 0),
        size_bytes=arrays.size_bytes[tensor[edge]],
    )


def devices_of(repetition: Repetition, copies: Copies, device: Ints) -> Ints:
    """Return the device of each copy, by that of each op of the graph."""
    is_on_next = repetition.on_next[copies.source]
    of_copy: Ints = device[copies.source] + np.where(is_on_next, copies.number, 0)
    return of_copy
