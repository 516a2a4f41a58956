"""Identities of layers and ops, which find an op again where only names have changed.

A placement file keeps them beside the names. `numbering` numbers the ops of a graph by refining
fingerprints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from placement_advisor.files.contract import ByName, Count, What
from placement_advisor.graph.fingerprint import digest, hashes_of_ops, layer_fingerprints, own_hash
from placement_advisor.graph.op import CONTROL_PORT, Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from placement_advisor.graph.op_graph import OpGraph

    Colours = NDArray[np.uint64]
    Numbers = NDArray[np.int64]


# Sets of ops that are alike and numbered one at a time; what is left then is numbered at once. Each
# costs a few passes over the graph, so this bounds the time. A guess: no model seen needs nearly as
# many, and where it is too few, a graph of other names may be refused.
_MOST_SETS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Numbers of ops but constants, of layers (None: of no layer), and what they hold for."""

    fingerprint: str
    ops: Mapping[str, int]
    layers: Mapping[str | None, int]


# Several placements of a graph are saved in turn.
@lru_cache(maxsize=1)
def numbering(graph: OpGraph) -> Numbering:
    """Return the numbers of a graph's ops and layers."""
    order = _order(graph)
    number = {name: i for i, name in enumerate(order)}
    layers: dict[str | None, int] = {}
    variables: dict[str | None, int] = {}
    rows = []
    for name in order:
        op = graph.op(name)
        reads = []
        for edge in graph.inputs_of(name):
            if edge.port != CONTROL_PORT:
                producer = graph.op(edge.producer)
                is_constant = producer.role is Role.CONSTANT
                read = own_hash(producer) if is_constant else number[edge.producer]
                reads.append((str(read), edge.port, edge.size_bytes))
        layer = layers.setdefault(op.layer or None, len(layers))
        variable = variables.setdefault(op.variable, len(variables))
        rows.append((own_hash(op), layer, variable, sorted(reads, key=repr)))
    return Numbering(fingerprint=digest(rows), ops=number, layers=layers)


def _order(graph: OpGraph) -> list[str]:
    """Return the ops but constants in an order that does not depend on names."""
    seen = hashes_of_ops(graph)
    names = list(seen)
    place = {name: i for i, name in enumerate(names)}
    edges = [
        (place[edge.producer], place[edge.consumer], edge.port)
        for edge in graph.edges
        if edge.port != CONTROL_PORT and edge.producer in place and edge.consumer in place
    ]
    layers = {
        layer: i for i, layer in enumerate(dict.fromkeys(graph.op(n).layer or None for n in names))
    }
    around = (
        np.array(edges, np.int64).reshape(-1, 3),
        np.array([layers[graph.op(name).layer or None] for name in names], np.int64),
    )
    colours = np.array([int(seen[name], 16) for name in names], np.uint64)
    colours = _refined(colours, *around)
    for _ in range(_MOST_SETS):
        alike = _least_alike(colours)
        if not len(alike):
            break
        colours[alike] = _mixed(colours[alike] + np.arange(1, len(alike) + 1, dtype=np.uint64))
        colours = _refined(colours, *around)
    return [names[i] for i in np.argsort(colours, kind="stable")]


def _refined(colours: Colours, edges: Numbers, layer: Numbers) -> Colours:
    """Return colours that tell all apart that differ in what is around them.

    Edges are (producer, consumer, port); with the layer of each op all are numbers.
    """
    producers, consumers, ports = edges.T
    carried = _mixed(ports.astype(np.uint64))
    count = len(np.unique(colours))
    while True:
        reads = _sums(consumers, _mixed(colours[producers] ^ carried), len(colours))
        readers = _sums(producers, _mixed(colours[consumers] ^ carried), len(colours))
        beside = _sums(layer, _mixed(colours), len(colours))[layer]
        finer = _mixed(_mixed(_mixed(_mixed(colours) + reads) + readers) + beside)
        found = len(np.unique(finer))
        if found <= count:
            return colours
        colours, count = finer, found


def _least_alike(colours: Colours) -> NDArray[Any]:
    """Return the places of the least colour that several ops have; none if there is none."""
    found, counts = np.unique(colours, return_counts=True)
    shared = found[counts > 1]
    return np.flatnonzero(colours == shared[0]) if len(shared) else np.empty(0, np.int64)


def _sums(at: Numbers, values: Colours, count: int) -> Colours:
    total = np.zeros(count, np.uint64)
    np.add.at(total, at, values)
    return total


def _mixed(values: Colours) -> Colours:
    """Return numbers whose every bit depends on every bit of those given."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


Fingerprint = Annotated[
    str, Field(pattern="^[0-9a-f]{16}$"), What("a hash of 16 hexadecimal digits")
]
Number = Annotated[Count, What("a number")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerIdentity:
    """A layer of a graph beside its name; ops of no layer are those of the layer ""."""

    number: Number
    """Independent of names."""
    made_of: Fingerprint
    """Hash of its ops."""
    ops: ByName[Number]
    """Its ops of `by_op`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """What some layers and ops of a graph are beside their names."""

    fingerprint: Fingerprint
    """Hash of the graph without names."""
    layers: ByName[LayerIdentity]
    """Those of `by_layer`."""

    def __post_init__(self) -> None:
        layers = [layer.number for layer in self.layers.values()]
        ops = [number for layer in self.layers.values() for number in layer.ops.values()]
        if len(set(layers)) < len(layers) or len(set(ops)) < len(ops):
            raise ValueError("two layers or ops have the same number")

    def made_of(self) -> dict[str, str]:
        """Return the hash of what each layer's ops are."""
        return {name: layer.made_of for name, layer in self.layers.items()}

    def layer_of(self) -> dict[str, str]:
        """Return the layer of each op."""
        return {op: name for name, layer in self.layers.items() for op in layer.ops}

    def names_in(self, graph: OpGraph) -> tuple[dict[str, str], dict[str, str]] | None:
        """Return a graph's names of layers and ops by those here, None if it is another graph."""
        here = numbering(graph)
        if here.fingerprint != self.fingerprint:
            return None
        layers = {number: layer or "" for layer, number in here.layers.items()}
        ops = {number: op for op, number in here.ops.items()}
        theirs = {name: layer.number for name, layer in self.layers.items()}
        ops_of = (layer.ops.items() for layer in self.layers.values())
        return (
            {name: layers[number] for name, number in theirs.items() if number in layers},
            {name: ops[number] for each in ops_of for name, number in each if number in ops},
        )


def identities(graph: OpGraph, layers: Collection[str], ops: Collection[str]) -> Identities:
    """Return what a file holds of some layers of a graph, and of some of their ops."""
    numbers, made_of = numbering(graph), layer_fingerprints(graph)
    ops_of: dict[str, dict[str, int]] = {layer: {} for layer in layers}
    for op in ops:
        ops_of[graph.op(op).layer or ""][op] = numbers.ops[op]
    return Identities(
        fingerprint=numbers.fingerprint,
        layers={
            layer: LayerIdentity(
                number=numbers.layers[layer or None], made_of=made_of[layer or None], ops=ops_there
            )
            for layer, ops_there in ops_of.items()
        },
    )
