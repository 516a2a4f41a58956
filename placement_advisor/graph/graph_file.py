"""The file of an op graph: gzipped JSON, documented in the contracts.

A file is data that may come from anywhere. Reading checks everything but what `OpGraph` checks
itself (ops given twice, cycles), within limits on size, so that no file can crash the reader,
fill the memory or take long. Writing goes in slices, so that a large graph is never in memory
as one text.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import STRICT, ByName, Text, value_in
from placement_advisor.files.foreign_json import (
    MAX_TEXT_BYTES,
    MisfitError,
    as_list,
    as_object,
    check_version,
    content,
    field,
    integer,
    parse,
    shown,
    text,
    within,
)
from placement_advisor.files.limits import MAX_BYTES
from placement_advisor.graph.op import CONTROL_PORT, Edge, Inside, Op, Role
from placement_advisor.graph.op_work.kernels import DIMENSIONS, Arithmetic, Kernel, KernelFamily
from placement_advisor.graph.op_work.signature import WorkBasis
from placement_advisor.graph.traced_as import TracedAs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from enum import StrEnum
    from pathlib import Path

T = TypeVar("T")

SCHEMA_VERSION = 1
FIELDS = ("schema_version", "ops", "edges", "requested_device_of", "traced_as")
# Level 9 takes three times as long for 3 % less.
COMPRESSION_LEVEL = 6

_GZIP_WBITS = 31
_SLICE = 10_000
_END = b"}\n"
_EDGE_VALUES = 4
# Family and dimensions; a third says in which numbers, where that is not TensorFlow's default.
_KERNEL_VALUES = 2
# Nothing is equal to a new object: name and kind are always written.
_DEFAULTS = tuple(Op._field_defaults.get(name, object()) for name in Op._fields)


class GraphFile(NamedTuple):
    """What a file holds.

    ``requested_device_of`` and ``traced_as`` are None where it says nothing of them.
    """

    ops: list[Op]
    edges: list[Edge]
    requested_device_of: Mapping[str, str] | None
    traced_as: TracedAs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """What a file may hold beside the graph."""

    __pydantic_config__: ClassVar = STRICT

    requested_device_of: ByName[Text] | None
    traced_as: TracedAs | None


def write_graph(
    path: Path,
    ops: Sequence[Op],
    edges: Sequence[Edge],
    requested_device_of: Mapping[str, str] | None = None,
    traced_as: TracedAs | None = None,
) -> None:
    """Write the file. Neither name nor time go into it: equal graphs give equal bytes.

    ``requested_device_of`` has the devices that the user's own scopes ask for, by op. Neither they
    nor ``traced_as`` are part of the graph: its fingerprint is the same for any.

    Raises:
        OSError: the file cannot be written.
    """
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", COMPRESSION_LEVEL, fileobj=raw, mtime=0) as file,
    ):
        for piece in _pieces(ops, edges):
            file.write(piece)
        if requested_device_of is not None:
            asked = json.dumps(dict(requested_device_of), sort_keys=True, separators=(",", ":"))
            file.write(f',"requested_device_of":{asked}'.encode())
        if traced_as is not None:
            how = json.dumps(asdict(traced_as), sort_keys=True, separators=(",", ":"))
            file.write(f',"traced_as":{how}'.encode())
        file.write(_END)


def graph_fingerprint(ops: Sequence[Op], edges: Sequence[Edge]) -> str:
    """Return a hash of what `write_graph` would write of a graph alone."""
    digest = hashlib.sha256()
    for piece in _pieces(ops, edges):
        digest.update(piece)
    digest.update(_END)
    return digest.hexdigest()[:16]


def read_graph(path: Path) -> GraphFile:
    """Return what a file holds.

    Raises:
        AdvisorError: it cannot be read, or is none that `write_graph` could have written.
    """
    try:
        document = as_object(parse(_unpacked(path)))
        check_version(document, SCHEMA_VERSION)
        as_object(document, FIELDS)
        ops = _read_each(document, "ops", OpReader())
        edges = _read_each(document, "edges", _Edges(ops))
        rest = {key: document.get(key) for key in ("requested_device_of", "traced_as")}
        beside = value_in(_Beside, rest)
        return GraphFile(ops, edges, beside.requested_device_of, beside.traced_as)
    except MisfitError as misfit:
        raise AdvisorError(
            f"{path}: {misfit}", hint="a graph file is written by `advisor trace`"
        ) from None


def _pieces(ops: Sequence[Op], edges: Sequence[Edge]) -> Iterator[bytes]:
    place = {op.name: i for i, op in enumerate(ops)}
    rows = ([place[e.producer], place[e.consumer], e.port, e.size_bytes] for e in edges)
    yield f'{{"schema_version":{SCHEMA_VERSION},"ops":['.encode()
    yield from _slices(map(_op_row, ops))
    yield b'],"edges":['
    yield from _slices(rows)
    yield b"]"


def _slices(rows: Iterable[Any]) -> Iterator[bytes]:
    """Yield the rows as JSON, many at a time."""
    rows = iter(rows)
    comma = b""
    while some := list(islice(rows, _SLICE)):
        yield comma + json.dumps(some, separators=(",", ":"))[1:-1].encode()
        comma = b","


def _op_row(op: Op) -> dict[str, Any]:
    """Return the fields of an op that say anything."""
    values = zip(Op._fields, op, _DEFAULTS, strict=True)
    row: dict[str, Any] = {name: value for name, value, default in values if value != default}
    if "device_kinds" in row:
        row["device_kinds"] = sorted(op.device_kinds)
    if op.kernel is not None and op.kernel.arithmetic is Arithmetic.DEFAULT:
        row["kernel"] = op.kernel[:_KERNEL_VALUES]
    return row


def _unpacked(path: Path) -> bytes:
    """Return what a gzip file holds, unpacked up to the size that any text may have."""
    packed = content(path)
    unpacking = zlib.decompressobj(_GZIP_WBITS)
    try:
        unpacked = unpacking.decompress(packed, MAX_TEXT_BYTES + 1)
    except zlib.error:
        problem = "damaged" if packed.startswith(b"\x1f\x8b") else "not a gzip file"
        raise MisfitError(problem) from None
    if len(unpacked) > MAX_TEXT_BYTES:
        raise MisfitError(f"unpacks to more than {MAX_TEXT_BYTES // 10**6} MB")
    if not unpacking.eof:
        raise MisfitError("cut off before its end")
    if unpacking.unused_data:
        raise MisfitError("has data after its end")
    return unpacked


def _read_each(document: dict[str, object], key: str, read_row: Callable[[object], T]) -> list[T]:
    """Return the rows of a list, each as ``read_row`` reads it."""
    return list(field(document, key, lambda rows: _tuple(rows, read_row)))


class OpReader:
    """Reads op after op; equal texts become one object, and so do equal sets of device kinds."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._sets: dict[tuple[str, ...], frozenset[str]] = {}
        self._read: dict[str, Callable[[object], Any]] = {
            "name": text,
            "kind": self._text,
            "role": _member(Role),
            "layer": self._text,
            "variable": self._text,
            "flops": _count,
            "bytes_accessed": _count,
            "work_basis": _member(WorkBasis),
            "trips": _count,
            "output_bytes": lambda value: _tuple(value, optional_size),
            "parameter_bytes": _size,
            "device_kinds": self._set,
            "host_outputs": lambda value: _tuple(value, _port),
            "kernel": _kernel,
            "inside": _inside,
        }

    def __call__(self, row: object) -> Op:
        """Return the op that an object describes.

        Raises:
            MisfitError: it describes none.
        """
        values = {}
        key = ""
        try:
            for key, value in as_object(row, self._read).items():
                values[key] = self._read[key](value)
        except MisfitError as misfit:
            raise misfit.inside(key) if key else misfit from None
        for key in ("name", "kind"):
            if key not in values:
                raise MisfitError(f"no field {key!r}")
        op = Op(**values)
        for i, port in enumerate(op.host_outputs):
            if port >= len(op.output_bytes):
                raise MisfitError(_no_port(op, port), f"host_outputs[{i}]")
        return op

    def _text(self, value: object) -> str:
        found = text(value)
        return self._texts.setdefault(found, found)

    def _set(self, value: object) -> frozenset[str]:
        found = _tuple(value, self._text)
        return self._sets.setdefault(found, frozenset(found))


class _Edges:
    """Reads edge after edge between known ops."""

    def __init__(self, ops: list[Op]) -> None:
        self._ops = ops
        self._names = [op.name for op in ops]
        self._ports = [len(op.output_bytes) for op in ops]
        self._last = len(ops) - 1
        self._what = f"an op: ops go from 0 to {self._last}" if ops else "an op: there are none"

    def __call__(self, row: object) -> Edge:
        values = as_list(row)
        if len(values) != _EDGE_VALUES:
            raise MisfitError(f"{shown(row)} is not [producer, consumer, port, size_bytes]")
        source = integer(values[0], self._what, high=self._last)
        target = integer(values[1], self._what, high=self._last)
        port = integer(values[2], "a port", low=CONTROL_PORT)
        if port >= self._ports[source]:
            raise MisfitError(_no_port(self._ops[source], port))
        return Edge(self._names[source], self._names[target], port, optional_size(values[3]))


def _no_port(op: Op, port: int) -> str:
    return f"op {shown(op.name)} has {len(op.output_bytes)} outputs, none of them number {port}"


def _count(value: object) -> int:
    return integer(value, "a count")


def _size(value: object) -> int:
    return integer(value, "a number of bytes from 0 to 10^15", high=MAX_BYTES)


def _port(value: object) -> int:
    return integer(value, "a port")


def _dimension(value: object) -> int:
    return integer(value, "a dimension from 1 to 10^15", low=1, high=MAX_BYTES)


def _kernel(value: object) -> Kernel:
    parts = as_list(value)
    if len(parts) not in (_KERNEL_VALUES, _KERNEL_VALUES + 1):
        raise MisfitError(f"{shown(value)} is not [family, dimensions] nor with numbers beside")
    family = KernelFamily(within("[0]", _member(KernelFamily), parts[0]))
    dims = within("[1]", lambda rows: _tuple(rows, _dimension), parts[1])
    if len(dims) != len(DIMENSIONS[family]):
        raise MisfitError(f"{shown(dims)} is not [{', '.join(DIMENSIONS[family])}]", "[1]")
    if len(parts) == _KERNEL_VALUES:
        return Kernel(family, dims)
    return Kernel(family, dims, Arithmetic(within("[2]", _member(Arithmetic), parts[2])))


def _inside(value: object) -> Inside:
    parts = as_list(value)
    if len(parts) != len(Inside._fields):
        raise MisfitError(f"{shown(value)} is not [{', '.join(Inside._fields)}]")
    ops, copies = (within(f"[{i}]", _count, parts[i]) for i in range(2))
    return Inside(ops, copies, within("[2]", optional_size, parts[2]))


def optional_size(value: object) -> int | None:
    """Return the value as bytes of a tensor, None if they are not known.

    Raises:
        MisfitError: it is neither.
    """
    return None if value is None else _size(value)


def _member(kinds: type[StrEnum]) -> Callable[[object], StrEnum]:
    """Return what reads a member of an enumeration."""
    by_value = {str(kind): kind for kind in kinds}

    def read(value: object) -> StrEnum:
        if not isinstance(value, str) or value not in by_value:
            raise MisfitError(f"{shown(value)} is not one of {', '.join(by_value)}")
        return by_value[value]

    return read


def _tuple(value: object, read_item: Callable[[object], T]) -> tuple[T, ...]:
    found: list[T] = []
    try:
        for item in as_list(value):
            found.append(read_item(item))  # noqa: PERF401 - the place of a misfit is its length.
    except MisfitError as misfit:
        raise misfit.inside(f"[{len(found)}]") if isinstance(value, list) else misfit from None
    return tuple(found)
