"""A graph's ops by number, so that they are found again in a graph that only has other names.

Keras numbers layers as they are made in a process: a model that is built twice is ``dense`` once
and ``dense_1`` the next time, and what goes by names in order, such as ``dense_9`` and
``dense_10``, is in another order.

Model: ops are told apart by what they compute, by what is computed from them, and by their layer,
again and again until that tells nothing new (colour refinement). Ops that are still alike, as
those of equal towers are, get their numbers in the order of the graph, one set of them at a time,
since that tells others apart. The numbering's fingerprint hashes every op with the numbers of what
it reads, of its layer and of its variable. So where two fingerprints are equal, ops of one number
are the same op: numbers take each edge of one graph to an edge of the other, and layers to layers.

Left out: control edges and values of constants, as in fingerprints. Two graphs that differ in names
alone may get different fingerprints if ops are alike in more than one way at once and stand in
another order: then they are taken for different graphs.

Source: Weisfeiler, Lehman, The reduction of a graph to canonical form, 1968, for the refinement;
Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA '14, for the mixing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.graph.op import CONTROL_PORT, Role
from placement_advisor.graph.structure.fingerprint import digest, hashes_of_ops, own_hash

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from placement_advisor.graph.op_graph import OpGraph

    Colours = NDArray[np.uint64]

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
    refining = _Refining(
        edges=np.array(edges, np.int64).reshape(-1, 3),
        layer=np.array([layers[graph.op(name).layer or None] for name in names], np.int64),
    )
    colours = np.array([int(seen[name], 16) for name in names], np.uint64)
    colours = refining.refined(colours)
    for _ in range(_MOST_SETS):
        alike = _least_alike(colours)
        if not len(alike):
            break
        colours[alike] = _mixed(colours[alike] + np.arange(1, len(alike) + 1, dtype=np.uint64))
        colours = refining.refined(colours)
    return [names[i] for i in np.argsort(colours, kind="stable")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refining:
    """Edges as (producer, consumer, port) and the layer of each op, all by number."""

    edges: NDArray[np.int64]
    layer: NDArray[np.int64]

    def refined(self, colours: Colours) -> Colours:
        """Return colours that tell all apart that differ in what is around them."""
        count = len(np.unique(colours))
        while True:
            finer = self._once(colours)
            found = len(np.unique(finer))
            if found <= count:
                return colours
            colours, count = finer, found

    def _once(self, colours: Colours) -> Colours:
        producers, consumers, ports = self.edges.T
        carried = ports.astype(np.uint64)
        reads = _sums(consumers, _mixed(colours[producers] ^ _mixed(carried)), len(colours))
        readers = _sums(producers, _mixed(colours[consumers] ^ _mixed(carried)), len(colours))
        beside = _sums(self.layer, _mixed(colours), len(colours))[self.layer]
        return _mixed(_mixed(_mixed(_mixed(colours) + reads) + readers) + beside)


def _least_alike(colours: Colours) -> NDArray[Any]:
    """Return the places of the least colour that several ops have; none if there is none."""
    found, counts = np.unique(colours, return_counts=True)
    shared = found[counts > 1]
    return np.flatnonzero(colours == shared[0]) if len(shared) else np.empty(0, np.int64)


def _sums(at: NDArray[np.int64], values: Colours, count: int) -> Colours:
    total = np.zeros(count, np.uint64)
    np.add.at(total, at, values)
    return total


def _mixed(values: Colours) -> Colours:
    """Return numbers whose every bit depends on every bit of those given."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
