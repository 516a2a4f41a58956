"""The op graph: what one step computes, with the size of every tensor.

Model: a directed acyclic graph of ops. An edge is one output tensor of its producer as one
consumer reads it, or a control dependency, which carries no bytes. A tensor that several
consumers read appears once per consumer, with the same producer, port and size; the size is the
one that the producer lists for the port.

Left out: whether a port exists. An edge may leave a port for which its producer lists no size; a
graph file may not hold one.

Its file is gzipped JSON that also says how the step was traced, and is read without networkx, which
other programs use.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import accumulate, chain, islice, pairwise
from operator import le
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from annotated_types import Le

from placement_advisor.errors import AdvisorError
from placement_advisor.files import contract, untrusted
from placement_advisor.graph.digraph import find_cycle, topological_order
from placement_advisor.graph.op import CONTROL_PORT, DIMENSIONS, Arithmetic, Edge, Op, Port, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import networkx as nx

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

    def data_inputs(self, name: str) -> list[Edge]:
        """Return the tensors that the op reads."""
        return [edge for edge in self.inputs_of(name) if not edge.is_control]

    def data_outputs(self, name: str) -> list[Edge]:
        """Return the tensors of the op as its consumers read them."""
        return [edge for edge in self.outputs_of(name) if not edge.is_control]

    def producers(self, name: str) -> list[str]:
        """Return the ops whose tensors the op reads, for each tensor."""
        return [edge.producer for edge in self.data_inputs(name)]

    def consumers(self, name: str) -> list[str]:
        """Return the ops that read the op's tensors, for each tensor."""
        return [edge.consumer for edge in self.data_outputs(name)]

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

    @cached_property
    def placed_ops(self) -> tuple[Op, ...]:
        """The ops that have a device: all but constants, which are copied to their readers."""
        return tuple(op for op in self.ops if op.role is not Role.CONSTANT)

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
        digest = hashlib.sha256()
        for piece in chain(_pieces(self), [_END]):
            digest.update(piece)
        return digest.hexdigest()[:16]

    def layers(self) -> tuple[str, ...]:
        """Return the layers in the order in which their first op stands."""
        return tuple(dict.fromkeys(op.layer for op in self.ops if op.layer is not None))

    def as_networkx(self, device_of: Mapping[str, str] | None = None) -> nx.MultiDiGraph[str]:
        """Return a copy for networkx, with the devices of a placement if they are given.

        Nodes and edges have the fields of `Op` and `Edge` that are known as attributes;
        `from_networkx` takes them back.
        """
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        for op in self.ops:
            extra = {"colocation": op.variable, "device": (device_of or {}).get(op.name)}
            # As a graph file has them: enumerations as texts, tuples as lists.
            values = json.loads(json.dumps(op, default=sorted))
            attributes = {**dict(zip(Op._fields, values, strict=True)), **extra}
            name = attributes.pop("name")
            graph.add_node(name, **{key: v for key, v in attributes.items() if v is not None})
        for key, edge in enumerate(self.edges):
            size = {} if edge.size_bytes is None else {"size_bytes": edge.size_bytes}
            graph.add_edge(edge.producer, edge.consumer, key=key, port=edge.port, **size)
        return graph

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph[Any]) -> OpGraph:
        """Return the graph of ops that a networkx graph holds, as `as_networkx` lays it out.

        A node needs its ``kind``, an edge its ``port``; what is unknown may be None as well as
        absent, and any other attributes are left out.

        Raises:
            AdvisorError: an attribute is missing or misfits, the message names node or edge; or
                there is a cycle.
        """
        if not graph.is_directed():
            raise AdvisorError("edges lead from producer to consumer: the graph has no directions")
        try:
            ops = [
                untrusted.within(
                    f"node {untrusted.shown(name)}", _read_op, {**_known(Op, known), "name": name}
                )
                for name, known in graph.nodes(data=True)
            ]
            edges = [
                untrusted.within(
                    f"edge {untrusted.shown(source)} → {untrusted.shown(target)}",
                    partial(contract.value_from, Edge),
                    {**_known(Edge, known), "producer": source, "consumer": target},
                )
                for source, target, known in graph.edges(data=True)
            ]
        except untrusted.MisfitError as misfit:
            hint = "nodes and edges have the attributes that `as_networkx` gives them"
            raise AdvisorError(str(misfit), hint=hint) from None
        return cls(ops, edges)

    def host_bound(self, kind: str) -> frozenset[str]:
        """Return the ops that run on the host of a device of that kind, wherever they are placed.

        These are the ops without a kernel for it, what holds or takes a variable or table that
        such an op takes, and inputs, which a pipeline leaves on the host.
        """
        without = [op for op in self.ops if op.role is Role.INPUT or kind not in op.device_kinds]
        states = {op.variable for op in without} - {None}
        bound = {op.name for op in without} | {op.name for op in self.ops if op.variable in states}
        return frozenset(bound)

    def save(
        self,
        path: str | Path,
        requested_device_of: Mapping[str, str] | None = None,
        traced_as: TracedAs | None = None,
    ) -> None:
        """Write the graph as gzipped JSON; equal graphs give equal bytes, whatever file it is.

        ``requested_device_of`` has the devices that `tf.device` scopes ask for, by op; a check
        from the file alone places by them. ``traced_as`` is for what is held against the graph.
        Neither is part of the graph: its fingerprint is the same for any.

        Raises:
            OSError: the file cannot be written.
        """
        beside = {
            "requested_device_of": None if requested_device_of is None else {**requested_device_of},
            "traced_as": None if traced_as is None else asdict(traced_as),
        }
        with (
            Path(path).open("wb") as raw,
            gzip.GzipFile("", "wb", COMPRESSION_LEVEL, fileobj=raw, mtime=0) as file,
        ):
            for piece in _pieces(self):
                file.write(piece)
            for name, value in beside.items():
                if value is not None:
                    written = json.dumps(value, sort_keys=True, separators=(",", ":"))
                    file.write(f',"{name}":{written}'.encode())
            file.write(_END)

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
    try:
        document = contract.value_from(dict[str, Any], untrusted.parse_json(_unpacked(path)))
        rest = {key: value for key, value in document.items() if key not in ("ops", "edges")}
        beside = contract.value_in(_Beside, rest)
        ops = _rows(document, "ops", Op)
        for i, op in enumerate(ops):
            _check_op(op, f"ops[{i}].")
        graph = OpGraph(ops, _edges(ops, _rows(document, "edges", _EdgeRow)))
    except untrusted.MisfitError as misfit:
        hint = "a graph file is written by `advisor trace`"
        raise AdvisorError(f"{path}: {misfit}", hint=hint) from None
    except AdvisorError as error:
        raise AdvisorError(f"{path}: {error.message}", hint=error.hint) from None
    return LoadedGraph(graph, beside.requested_device_of, beside.traced_as)


def _check_sizes(ops: Sequence[Op], edges: Sequence[Edge]) -> None:
    """Check that 64 bits hold what the ops hold and make, all together."""
    held = [(op.name, size) for op in ops for size in (op.parameter_bytes, *op.output_bytes)]
    read = ((edge.producer, edge.size_bytes) for edge in edges)
    for name, size in chain(held, read):
        if size is not None and not 0 <= size <= untrusted.MAX_BYTES:
            raise AdvisorError(
                f"op {name!r}: {size} bytes, where a tensor or variable may have up to 10^15",
                hint="sizes are in bytes",
            )
    total = sum(size or 0 for _, size in held)
    if total > untrusted.MAX_TOTAL_BYTES:
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
            size_bytes = size_of.setdefault(edge.tensor, edge.size_bytes)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedAs:
    """A step's mode, batch, and the types and shapes of what it takes and returns, as text."""

    mode: contract.Text
    """`train` or `infer`."""
    batch_size: Annotated[contract.Count, contract.What("a number of samples")] | None
    """None if inputs carry none."""
    inputs: contract.Rows[contract.Text]
    """Such as `float32 [16, 8]`."""
    outputs: contract.Rows[contract.Text]
    """The same of each output."""

    def differences(self, today: TracedAs) -> Iterator[str]:
        """Say what was otherwise then than it is ``today``."""
        if self.mode != today.mode:
            yield f"the mode was {self.mode}, and is {today.mode} here"
        batches = {self.batch_size, today.batch_size}
        has_other_batch = None not in batches and len(batches) > 1
        if has_other_batch:
            yield f"the batch was {self.batch_size}, and is {today.batch_size} here"
        for what, then, now in (
            ("inputs", self.inputs, today.inputs),
            ("outputs", self.outputs, today.outputs),
        ):
            if has_other_batch:
                then, now = _of_any(self.batch_size, then), _of_any(today.batch_size, now)
            # Inputs may come in another order, as they may have other names.
            there, here = Counter(then) - Counter(now), Counter(now) - Counter(then)
            only = [
                f"only {where}: {untrusted.shown(', '.join(types.elements()))}"
                for where, types in (("there", there), ("here", here))
                if types
            ]
            if only:
                yield f"{what} {', '.join(only)}"


def _of_any(batch_size: int | None, types: Sequence[str]) -> tuple[str, ...]:
    """Return types without the batch, which is in most shapes."""
    return tuple(re.sub(rf"\[{batch_size}\b", "[batch", each) for each in types)


SCHEMA_VERSION = 1
# Level 9 takes three times as long for 3 % less.
COMPRESSION_LEVEL = 6

_GZIP_WBITS = 31
_SLICE = 10_000
_END = b"}\n"
# Family and dimensions; a third says in which numbers, where that is not TensorFlow's default.
_KERNEL_VALUES = 2
# Nothing is equal to a new object: name and kind are always written.
_DEFAULTS = tuple(Op._field_defaults.get(name, object()) for name in Op._fields)


class _EdgeRow(NamedTuple):
    """An edge; its ends are places of ops."""

    producer: contract.Count
    consumer: contract.Count
    port: Port
    size_bytes: contract.Bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What a file may hold beside the graph."""

    __pydantic_config__: ClassVar = contract.CLOSED

    schema_version: Annotated[contract.Version, Le(SCHEMA_VERSION)]
    requested_device_of: contract.ByName[contract.Text] | None = None
    traced_as: TracedAs | None = None


def _pieces(graph: OpGraph) -> Iterator[bytes]:
    place = graph.index
    rows = ([place(e.producer), place(e.consumer), e.port, e.size_bytes] for e in graph.edges)
    yield f'{{"schema_version":{SCHEMA_VERSION},"ops":['.encode()
    yield from _slices(map(_op_row, graph.ops))
    yield b'],"edges":['
    yield from _slices(rows)
    yield b"]"


def _slices(rows: Iterable[Any]) -> Iterator[bytes]:
    """Yield the rows as JSON, many at a time."""
    rows = iter(rows)
    comma = b""
    while some := list(islice(rows, _SLICE)):
        yield comma + json.dumps(some, separators=(",", ":"), default=sorted)[1:-1].encode()
        comma = b","


def _op_row(op: Op) -> dict[str, Any]:
    """Return the fields of an op that say anything."""
    values = zip(Op._fields, op, _DEFAULTS, strict=True)
    row: dict[str, Any] = {name: value for name, value, default in values if value != default}
    if op.kernel is not None and op.kernel.arithmetic is Arithmetic.DEFAULT:
        row["kernel"] = op.kernel[:_KERNEL_VALUES]
    return row


def _unpacked(path: Path) -> bytes:
    """Return what a gzip file holds, unpacked up to the size that any text may have."""
    packed = untrusted.read_text_bytes(path)
    unpacking = zlib.decompressobj(_GZIP_WBITS)
    try:
        unpacked = unpacking.decompress(packed, untrusted.MAX_TEXT_BYTES + 1)
    except zlib.error:
        problem = "damaged" if packed.startswith(b"\x1f\x8b") else "not a gzip file"
        raise untrusted.MisfitError(problem) from None
    if len(unpacked) > untrusted.MAX_TEXT_BYTES:
        raise untrusted.MisfitError(f"unpacks to more than {untrusted.MAX_TEXT_BYTES // 10**6} MB")
    if not unpacking.eof:
        raise untrusted.MisfitError("cut off before its end")
    if unpacking.unused_data:
        raise untrusted.MisfitError("has data after its end")
    return unpacked


def _rows(document: dict[str, object], key: str, kind: Any) -> tuple[Any, ...]:
    """Return the rows of a list, which is gone from the document when others are made of them."""
    if key not in document:
        raise untrusted.MisfitError(f"no field {key!r}")
    rows = document.pop(key)
    for i, row in enumerate(rows if isinstance(rows, list) else ()):
        if isinstance(row, dict) and len(row) > len(Op._fields):  # Each would be an error.
            raise untrusted.MisfitError(f"more than {len(Op._fields)} fields", f"{key}[{i}]")
    return untrusted.within(key, partial(contract.value_from, contract.Rows[kind]), rows)


def _read_op(value: object) -> Op:
    """Return the op that an object describes."""
    op = contract.value_from(Op, value)
    _check_op(op, "")
    return op


def _check_op(op: Op, place: str) -> None:
    for i, port in enumerate(op.host_outputs):
        if port >= len(op.output_bytes):
            raise untrusted.MisfitError(_no_port(op, port), f"{place}host_outputs[{i}]")
    if op.kernel is not None and len(op.kernel.dims) != len(DIMENSIONS[op.kernel.family]):
        names = ", ".join(DIMENSIONS[op.kernel.family])
        raise untrusted.MisfitError(
            f"{untrusted.shown(op.kernel.dims)} is not [{names}]", f"{place}kernel[1]"
        )


def _edges(ops: Sequence[Op], rows: Iterable[_EdgeRow]) -> list[Edge]:
    names = [op.name for op in ops]
    edges = []
    for i, (source, target, port, size_bytes) in enumerate(rows):
        if max(source, target) >= len(ops):
            known = f"ops go from 0 to {len(ops) - 1}" if ops else "there are none"
            raise untrusted.MisfitError(
                f"{max(source, target)} is not an op: {known}", f"edges[{i}]"
            )
        if port >= len(ops[source].output_bytes):
            raise untrusted.MisfitError(_no_port(ops[source], port), f"edges[{i}]")
        edges.append(Edge(names[source], names[target], port, size_bytes))
    return edges


def _no_port(op: Op, port: int) -> str:
    return (
        f"op {untrusted.shown(op.name)} has {len(op.output_bytes)} outputs, none of them "
        f"number {port}"
    )


def _known(kind: type[Op | Edge], attributes: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an op or edge that are known."""
    return {
        key: value for key, value in attributes.items() if key in kind._fields and value is not None
    }
