"""The op graph: what one step computes, with the size of every tensor.

Model: a directed acyclic graph of ops. An edge is one output tensor of its producer as one
consumer reads it, or a control dependency, which carries no bytes. A tensor that several
consumers read appears once per consumer, with the same producer, port and size; the size is the
one that the producer lists for the port.

Left out: whether a port exists. An edge may leave a port for which its producer lists no size; a
graph file may not hold one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from operator import le
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import MAX_BYTES, MAX_TOTAL_BYTES
from placement_advisor.graph.digraph import find_cycle, topological_order
from placement_advisor.graph.graph_file import (
    from_networkx,
    graph_fingerprint,
    read_graph,
    to_networkx,
    write_graph,
)
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import networkx as nx

    from placement_advisor.graph.graph_file import TracedAs

__all__ = ["CONTROL_PORT", "Edge", "Op", "OpGraph", "Role"]

# A cycle is named to be found, and an error is one line.
MAX_NAMED_ON_CYCLE = 8


@dataclass(frozen=True)
class OpGraph:
    """A DAG of ops, in a topological order that depends on the input order alone.

    Producers come first, otherwise ops stand as given. Edges stand by producer, consumer, port.
    A variable that an op of role VARIABLE does not name is named after the op.

    Raises:
        AdvisorError: duplicate op, edge to an unknown op, a cycle (which is named), sizes that no
            machine could hold, or an edge of another size than its producer lists.
    """

    ops: tuple[Op, ...]
    edges: tuple[Edge, ...]
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __init__(self, ops: Iterable[Op], edges: Iterable[Edge]) -> None:
        ops, edges = tuple(map(_with_variable, ops)), tuple(edges)
        place = {op.name: i for i, op in enumerate(ops)}
        if len(place) != len(ops):
            twice = next(op.name for i, op in enumerate(ops) if place[op.name] != i)
            raise AdvisorError(f"op {twice!r} appears twice in the graph")
        for edge in edges:
            if edge.producer not in place or edge.consumer not in place:
                gone = edge.consumer if edge.producer in place else edge.producer
                raise AdvisorError(
                    f"edge {edge.producer!r} → {edge.consumer!r}: op {gone!r} is not in the graph"
                )
        _check_sizes(ops, edges)
        _check_tensors(place, ops, edges)
        sources = [place[edge.producer] for edge in edges]
        targets = [place[edge.consumer] for edge in edges]
        order = topological_order(len(ops), sources, targets)
        if order is None:
            cycle = [ops[i].name for i in find_cycle(len(ops), sources, targets)]
            raise AdvisorError(f"the graph has a cycle: {_as_text(cycle)}")
        ordered = tuple(ops[i] for i in order)
        rank = {op.name: i for i, op in enumerate(ordered)}
        object.__setattr__(self, "ops", ordered)
        object.__setattr__(self, "edges", _sorted(edges, rank))
        object.__setattr__(self, "_index", rank)

    def __len__(self) -> int:
        return len(self.ops)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __reduce__(self) -> tuple[object, ...]:
        # By column, and without indices, a graph goes to another process in a quarter of the time.
        columns = [tuple(zip(*rows, strict=True)) for rows in (self.ops, self.edges)]
        return _from_columns, tuple(columns)

    def op(self, name: str) -> Op:
        """Return the op of that name.

        Raises:
            KeyError: no such op.
        """
        return self.ops[self._index[name]]

    def index(self, name: str) -> int:
        """Return the op's place in the topological order.

        Raises:
            KeyError: no such op.
        """
        return self._index[name]

    def outputs_of(self, name: str) -> tuple[Edge, ...]:
        """Return the edges that leave the op.

        Raises:
            KeyError: no such op.
        """
        i = self._index[name]
        return self.edges[self._out_start[i] : self._out_start[i + 1]]

    def inputs_of(self, name: str) -> tuple[Edge, ...]:
        """Return the edges that enter the op.

        Raises:
            KeyError: no such op.
        """
        i = self._index[name]
        return self._by_consumer[self._in_start[i] : self._in_start[i + 1]]

    @cached_property
    def _out_start(self) -> list[int]:
        return self._starts(edge.producer for edge in self.edges)

    @cached_property
    def _in_start(self) -> list[int]:
        return self._starts(edge.consumer for edge in self.edges)

    @cached_property
    def _by_consumer(self) -> tuple[Edge, ...]:
        return tuple(sorted(self.edges, key=lambda edge: self._index[edge.consumer]))

    def _starts(self, names: Iterable[str]) -> list[int]:
        """Return where the edges of each op start among edges sorted by it."""
        counts = [0] * (len(self.ops) + 1)
        for name in names:
            counts[self._index[name] + 1] += 1
        return list(accumulate(counts))

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
        return graph_fingerprint(self.ops, self.edges)

    def layers(self) -> tuple[str, ...]:
        """Return the layers in the order in which their first op stands."""
        return tuple(dict.fromkeys(op.layer for op in self.ops if op.layer is not None))

    def as_networkx(self, device_of: Mapping[str, str] | None = None) -> nx.MultiDiGraph[str]:
        """Return a copy for networkx, with the devices of a placement if they are given.

        Attributes of nodes and edges are those of `networkx_form`; `from_networkx` takes them back.
        """
        return to_networkx(self.ops, self.edges, device_of)

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph[Any]) -> OpGraph:
        """Return the graph of ops that a networkx graph holds, as `as_networkx` lays it out.

        Raises:
            AdvisorError: an attribute is missing or misfits, or there is a cycle.
        """
        return cls(*from_networkx(graph))

    def save(
        self,
        path: str | Path,
        requested_device_of: Mapping[str, str] | None = None,
        traced_as: TracedAs | None = None,
    ) -> None:
        """Write the graph as gzipped JSON; equal graphs give equal bytes.

        ``requested_device_of`` has the devices that `tf.device` scopes ask for, by op; a check
        from the file alone places by them. ``traced_as`` is for what is held against the graph.

        Raises:
            OSError: the file cannot be written.
        """
        write_graph(Path(path), self.ops, self.edges, requested_device_of, traced_as)

    @classmethod
    def load(cls, path: str | Path) -> OpGraph:
        """Read what `save` wrote, on this machine or another. The file is not trusted.

        Raises:
            AdvisorError: the file cannot be read, is damaged, or describes no graph; the message
                names the file and the place in it.
        """
        return load_graph(Path(path)).graph


class LoadedGraph(NamedTuple):
    """A graph, and what its file says of it otherwise; None where it does not."""

    graph: OpGraph
    requested_device_of: Mapping[str, str] | None
    traced_as: TracedAs | None


def load_graph(path: Path) -> LoadedGraph:
    """Read a graph, and what its file says beside it.

    Raises:
        AdvisorError: as `OpGraph.load`.
    """
    file = read_graph(path)
    try:
        graph = OpGraph(file.ops, file.edges)
    except AdvisorError as error:
        raise AdvisorError(f"{path}: {error.message}", hint=error.hint) from None
    return LoadedGraph(graph, file.requested_device_of, file.traced_as)


def _check_sizes(ops: Sequence[Op], edges: Sequence[Edge]) -> None:
    """Check that 64 bits hold what the ops hold and make, all together."""
    held = [(op.name, size) for op in ops for size in (op.parameter_bytes, *op.output_bytes)]
    read = ((edge.producer, edge.size_bytes) for edge in edges)
    for name, size in chain(held, read):
        if size is not None and not 0 <= size <= MAX_BYTES:
            raise AdvisorError(
                f"op {name!r}: {size} bytes, where a tensor or variable may have up to 10^15",
                hint="sizes are in bytes",
            )
    total = sum(size or 0 for _, size in held)
    if total > MAX_TOTAL_BYTES:
        raise AdvisorError(
            f"the tensors and variables of the graph have {total} bytes, where 10^17 are the most",
            hint="sizes are in bytes",
        )


def _check_tensors(place: Mapping[str, int], ops: Sequence[Op], edges: Sequence[Edge]) -> None:
    """Check that the edges of a tensor have its size: what the producer lists, if it does."""
    size_of: dict[tuple[str, int], int | None] = {}
    for edge in edges:
        if edge.is_control:
            continue
        listed = ops[place[edge.producer]].output_bytes
        if edge.port < len(listed):
            size_bytes = listed[edge.port]
        else:
            size_bytes = size_of.setdefault((edge.producer, edge.port), edge.size_bytes)
        if edge.size_bytes != size_bytes:
            raise AdvisorError(
                f"edge {edge.producer!r} → {edge.consumer!r} carries {_bytes(edge.size_bytes)}, "
                f"where output {edge.port} of {edge.producer!r} has {_bytes(size_bytes)}",
                hint="an edge has the size of the tensor that it carries",
            )


def _with_variable(op: Op) -> Op:
    is_unnamed = op.role is Role.VARIABLE and op.variable is None
    return op._replace(variable=op.name) if is_unnamed else op


def _bytes(size_bytes: int | None) -> str:
    return "an unknown number of bytes" if size_bytes is None else f"{size_bytes} bytes"


def _from_columns(ops: tuple[Any, ...], edges: tuple[Any, ...]) -> OpGraph:
    return OpGraph(map(Op._make, zip(*ops, strict=True)), map(Edge._make, zip(*edges, strict=True)))


def _sorted(edges: tuple[Edge, ...], rank: Mapping[str, int]) -> tuple[Edge, ...]:
    """Return the edges by producer, consumer and port."""
    ports = 2 + max((edge.port for edge in edges), default=0)
    keys = [
        (rank[edge.producer] * len(rank) + rank[edge.consumer]) * ports + edge.port + 1
        for edge in edges
    ]
    if all(le(*pair) for pair in pairwise(keys)):
        return edges
    return tuple(edges[i] for i in sorted(range(len(edges)), key=keys.__getitem__))


def _as_text(cycle: Sequence[str]) -> str:
    if len(cycle) <= MAX_NAMED_ON_CYCLE:
        return " → ".join([*cycle, cycle[0]])
    named = " → ".join(cycle[:MAX_NAMED_ON_CYCLE])
    return f"{named} → … → {cycle[0]} ({len(cycle)} ops)"
