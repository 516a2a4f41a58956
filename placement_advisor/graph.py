"""The op graph: what one step computes, with the size of every tensor.

Model: a directed acyclic graph of ops. An edge is one output tensor of its producer as one
consumer reads it, or a control dependency, which carries no bytes. A tensor that several
consumers read appears once per consumer, with the same producer and port.

This module is the one door to networkx; everything else sees `Op` and `Edge` in a fixed order.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.work.signature import WorkBasis

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import networkx as nx

SCHEMA_VERSION = 1
CONTROL_PORT = -1


class Role(StrEnum):
    """What an op does within the step."""

    INPUT = "input"
    CONSTANT = "constant"
    VARIABLE = "variable"
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op of the step.

    ``layer`` names the call of a layer that the op belongs to; a gradient op carries the layer
    whose forward op it serves, an update op the layer of its variable. ``variable`` names the
    variable or table that the op holds, reads or updates; such ops run on one device.
    ``output_bytes`` has one entry per output port, None where the size is unknown.

    ``flops`` and ``bytes_accessed`` (reads plus writes of memory) are those of one run of the op,
    None where unknown; ``work_basis`` says where they come from, None if both are unknown.
    ``device_kinds`` are those with a kernel for the op's types. ``host_outputs`` are the ports
    whose tensor the GPU kernel leaves in host memory. A loop or conditional is one *composite*
    op; ``trips`` is how often a loop's body runs, where that is known.
    """

    name: str
    kind: str
    role: Role = Role.FORWARD
    layer: str | None = None
    variable: str | None = None
    flops: int | None = None
    bytes_accessed: int | None = None
    work_basis: WorkBasis | None = None
    trips: int | None = None
    output_bytes: tuple[int | None, ...] = ()
    parameter_bytes: int = 0
    device_kinds: frozenset[str] = frozenset({"CPU"})
    host_outputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One tensor on its way from ``producer`` to ``consumer``; port -1 is a control edge."""

    producer: str
    consumer: str
    port: int
    size_bytes: int | None

    @property
    def is_control(self) -> bool:
        """Whether the edge only orders its ends."""
        return self.port == CONTROL_PORT


@dataclass(frozen=True)
class OpGraph:
    """A DAG of ops, in a topological order that depends on the input order alone.

    Raises:
        AdvisorError: duplicate op, edge to an unknown op, or a cycle (which is named).
    """

    ops: tuple[Op, ...]
    edges: tuple[Edge, ...]
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __init__(self, ops: Iterable[Op], edges: Iterable[Edge]) -> None:
        given = tuple(ops)
        names = {op.name for op in given}
        if len(names) != len(given):
            seen: set[str] = set()
            twice = next(op.name for op in given if op.name in seen or seen.add(op.name))  # type: ignore[func-returns-value]
            raise AdvisorError(f"op {twice!r} appears twice in the graph")
        edges = tuple(edges)
        for edge in edges:
            for end in (edge.producer, edge.consumer):
                if end not in names:
                    raise AdvisorError(
                        f"edge {edge.producer!r} → {edge.consumer!r}: "
                        f"op {end!r} is not in the graph"
                    )
        ordered = _topological(given, edges)
        rank = {op.name: i for i, op in enumerate(ordered)}
        object.__setattr__(self, "ops", ordered)
        object.__setattr__(
            self,
            "edges",
            tuple(sorted(edges, key=lambda e: (rank[e.producer], rank[e.consumer], e.port))),
        )
        object.__setattr__(self, "_index", rank)

    def __len__(self) -> int:
        return len(self.ops)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def op(self, name: str) -> Op:
        """Return the op of that name.

        Raises:
            KeyError: no such op.
        """
        return self.ops[self._index[name]]

    def index(self, name: str) -> int:
        """Return the op's place in the topological order."""
        return self._index[name]

    def outputs_of(self, name: str) -> tuple[Edge, ...]:
        """Return the edges that leave the op."""
        return self._out.get(name, ())

    def inputs_of(self, name: str) -> tuple[Edge, ...]:
        """Return the edges that enter the op."""
        return self._in.get(name, ())

    @cached_property
    def _out(self) -> dict[str, tuple[Edge, ...]]:
        return _grouped(self.edges, "producer")

    @cached_property
    def _in(self) -> dict[str, tuple[Edge, ...]]:
        return _grouped(self.edges, "consumer")

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all variables."""
        return sum(op.parameter_bytes for op in self.ops)

    @property
    def edge_bytes_known_share(self) -> float:
        """Share of data edges whose size is known, by count; 1.0 if there are none."""
        data = [edge for edge in self.edges if not edge.is_control]
        return sum(edge.size_bytes is not None for edge in data) / len(data) if data else 1.0

    @cached_property
    def fingerprint(self) -> str:
        """Hash of ops, kinds, sizes and edges: equal for equal graphs on any machine."""
        content = json.dumps(self._as_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def layers(self) -> tuple[str, ...]:
        """Return the layers in the order in which their first op stands."""
        return tuple(dict.fromkeys(op.layer for op in self.ops if op.layer is not None))

    def as_networkx(self) -> nx.MultiDiGraph[str]:
        """Return a copy: op names as nodes with ``op=Op``, edges keyed by port with their bytes."""
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        for op in self.ops:
            graph.add_node(op.name, op=op)
        for edge in self.edges:
            graph.add_edge(edge.producer, edge.consumer, key=edge.port, size_bytes=edge.size_bytes)
        return graph

    def _as_json(self) -> dict[str, Any]:
        ops = []
        for op in self.ops:
            fields = asdict(op)
            fields["device_kinds"] = sorted(op.device_kinds)
            ops.append(fields)
        edges = [[e.producer, e.consumer, e.port, e.size_bytes] for e in self.edges]
        return {"schema_version": SCHEMA_VERSION, "ops": ops, "edges": edges}

    def save(self, path: Path) -> None:
        """Write the graph as gzipped JSON."""
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(self._as_json(), file, separators=(",", ":"))

    @classmethod
    def load(cls, path: Path) -> OpGraph:
        """Read what `save` wrote."""
        with gzip.open(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
        ops = [
            Op(
                **{
                    **fields,
                    "role": Role(fields["role"]),
                    "work_basis": fields["work_basis"] and WorkBasis(fields["work_basis"]),
                    "output_bytes": tuple(fields["output_bytes"]),
                    "host_outputs": tuple(fields["host_outputs"]),
                    "device_kinds": frozenset(fields["device_kinds"]),
                }
            )
            for fields in content["ops"]
        ]
        edges = [
            Edge(producer=producer, consumer=consumer, port=port, size_bytes=size_bytes)
            for producer, consumer, port, size_bytes in content["edges"]
        ]
        return cls(ops, edges)


def ancestor_cones(edges: Iterable[tuple[str, str]], nodes: Iterable[str]) -> dict[str, set[str]]:
    """Return for each node the set of itself and all nodes that reach it.

    Nodes on a common cycle share one cone.
    """
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    condensed = nx.condensation(graph)
    cones: dict[int, set[str]] = {}
    for component in nx.topological_sort(condensed):
        cone = set(condensed.nodes[component]["members"])
        for predecessor in condensed.predecessors(component):
            cone |= cones[predecessor]
        cones[component] = cone
    return {node: cones[component] for node, component in condensed.graph["mapping"].items()}


def _grouped(edges: Iterable[Edge], end: str) -> dict[str, tuple[Edge, ...]]:
    groups: dict[str, list[Edge]] = {}
    for edge in edges:
        groups.setdefault(getattr(edge, end), []).append(edge)
    return {name: tuple(group) for name, group in groups.items()}


def _topological(ops: tuple[Op, ...], edges: tuple[Edge, ...]) -> tuple[Op, ...]:
    """Order ops so that producers come first, otherwise as given."""
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    place = {op.name: i for i, op in enumerate(ops)}
    by_name = {op.name: op for op in ops}
    graph.add_nodes_from(place)
    graph.add_edges_from((edge.producer, edge.consumer) for edge in edges)
    try:
        return tuple(
            by_name[name]
            for name in nx.lexicographical_topological_sort(graph, key=place.__getitem__)
        )
    except nx.NetworkXUnfeasible:
        found = [edge[0] for edge in nx.find_cycle(graph)]
        cycle = " → ".join([*found, found[0]])
        raise AdvisorError(f"the graph has a cycle: {cycle}") from None
