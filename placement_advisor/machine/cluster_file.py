"""Clusters in TOML, written by hand or by a calibration, and levels of many of one, by hand.

A file is data that may come from anywhere. Whatever it holds, reading it ends in a cluster in which
every device can send to every other, or in one error that names the line. The bounds on figures are
far outside what machines have: they catch units that were mistaken, such as GB/s for bytes/s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise, permutations
from math import inf, prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from annotated_types import Ge, Le, MaxLen
from pydantic import AfterValidator, PlainSerializer, PlainValidator

from placement_advisor.errors import AdvisorError
from placement_advisor.files import contract, untrusted
from placement_advisor.machine import presets
from placement_advisor.machine.devices import (
    Basis,
    BytesPerS,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Link,
    Sharing,
    ShortNs,
)
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.hierarchy import MAX_IN_LEVELS, Machine, Ring

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
# Of two units each they hold as many devices as there may be.
_MAX_LEVELS = 20
# Names stand in tables and plots.
_MAX_NAME_CHARS = 100
# Of which a curve has a slope.
_MIN_COPIES = 2
# Whoever gives such a figure of a device means another one than its preset's datasheet describes.
_OF_DATASHEET = frozenset(
    {"kind", "peak_flops_per_s", "matrix_flops_per_s", "memory_bandwidth_bytes_per_s"}
)
_HINT = (
    "a cluster file has [[devices]] and, if wanted, [[hosts]]: each with a name, and a preset or a "
    "kind with figures. It has [[links]]: each with between, or source and target; and a preset, "
    "or latency_ns and bandwidth_bytes_per_s. [[levels]], for compare-hardware, have units, and a "
    "preset or figures"
)


def _known(find: Callable[[str], object]) -> AfterValidator:
    """Return what takes the names that something is found by."""

    def known(name: str) -> str:
        try:
            find(name)
        except AdvisorError as error:
            raise ValueError(error.message) from None
        return name

    return AfterValidator(known)


def _network(name: str) -> str:
    known = presets.networks(rdma=True)
    if name not in known:
        raise ValueError(
            f"{untrusted.shown(name)} is not a network; {presets.there_are(known, name)}"
        )
    return name


def _rising(copies: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if len(copies) < _MIN_COPIES:
        raise ValueError(f"{len(copies)} copies; a curve needs {_MIN_COPIES}")
    for i, (before, copy) in enumerate(pairwise(copies), start=1):
        if copy[0] <= before[0] or copy[1] < before[1]:
            raise ValueError(f"copy {i} needs more bytes than the one before, and no fewer ns")
    return copies


_Name = Annotated[contract.Name, MaxLen(_MAX_NAME_CHARS)]
_Flops = Annotated[
    float, Ge(1e6), Le(1e18), contract.What("a number of flop/s from 1e+06 to 1e+18")
]
_Memory = Annotated[
    int, Ge(10**6), Le(untrusted.MAX_BYTES), contract.What("a number of bytes from 10^6 to 10^15")
]
_UpTo = f"from 1 to {MAX_IN_LEVELS:,}"


class _Copy(NamedTuple):
    size_bytes: contract.Bytes
    ns: ShortNs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    name: _Name
    preset: (
        Annotated[contract.Text, _known(lambda preset: presets.device_preset(preset, name=""))]
        | None
    ) = None
    kind: Literal["GPU", "CPU"] | None = None
    peak_flops_per_s: _Flops | None = None
    matrix_flops_per_s: _Flops | None = None
    memory_bandwidth_bytes_per_s: BytesPerS | None = None
    memory_bytes: _Memory | None = None
    launch_overhead_ns: ShortNs | None = None
    launches_ahead: bool | None = None
    gpu: Annotated[contract.Text, _known(gpu_facts)] | None = None

    def __post_init__(self) -> None:
        if self.preset is None and self.kind is None:
            raise ValueError("needs a preset or a kind")

    def device(self) -> Device:
        given = _given(self)
        if self.preset is None:
            return Device(**given)
        preset = presets.device_preset(self.preset, name="")
        if not _OF_DATASHEET.isdisjoint(given):
            preset = replace(preset, gpu=None)
        return replace(preset, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device(_Host):
    host: _Name | None = None
    remote_start_ns: ShortNs | None = None
    remote_end_ns: ShortNs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    between: contract.Rows[contract.Text] | None = None
    source: contract.Text | None = None
    target: contract.Text | None = None
    preset: (
        Annotated[
            contract.Text, _known(lambda preset: presets.link_preset(preset, source="", target=""))
        ]
        | None
    ) = None
    latency_ns: ShortNs | None = None
    bandwidth_bytes_per_s: BytesPerS | None = None
    basis: Basis | None = None
    channel: _Name | None = None
    curve: Annotated[contract.Rows[_Copy], AfterValidator(_rising)] | None = None
    sender: CopyWork | None = None
    receiver: CopyWork | None = None
    request_ns: ShortNs | None = None
    wake_ns: ShortNs | None = None
    stream_bytes_per_s: BytesPerS | None = None

    def __post_init__(self) -> None:
        ends = self.source, self.target
        if None in ends if self.between is None else ends != (None, None):
            raise ValueError("needs between, or else source and target")
        _check_speed(self)

    def ends(self) -> dict[str, str]:
        """Return the names of what is linked, by their keys."""
        if self.between is not None:
            return {f"between[{i}]": end for i, end in enumerate(self.between)}
        return {"source": self.source or "", "target": self.target or ""}

    def links(self) -> list[Link]:
        ends = list(self.ends().values())
        pairs = [tuple(ends)] if self.between is None else list(permutations(ends, 2))
        if not pairs or len(set(ends)) < len(ends):
            raise untrusted.MisfitError("a link needs ends that differ")
        figures = _given(self, "between", "source", "target")
        if self.preset is not None:
            preset = presets.link_preset(self.preset, source="", target="")
            return [replace(preset, source=a, target=b, **figures) for a, b in pairs]
        figures.setdefault("basis", Basis.ASSUMED)
        return [Link(source=a, target=b, **figures) for a, b in pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    units: Annotated[int, Ge(1), Le(MAX_IN_LEVELS), contract.What(f"a number of units {_UpTo}")]
    preset: Annotated[contract.Text, AfterValidator(_network)] | None = None
    latency_ns: ShortNs | None = None
    bandwidth_bytes_per_s: BytesPerS | None = None
    wires: Annotated[int, Ge(1), Le(MAX_IN_LEVELS), contract.What(f"a number of wires {_UpTo}")] = 1
    core_bandwidth_bytes_per_s: (
        Annotated[
            float, Ge(1e6), Le(1e18), contract.What("a number of bytes/s from 1e+06 to 1e+18")
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        _check_speed(self)

    def ring(self) -> Ring:
        link = (
            {}
            if self.preset is None
            else _given(presets.link_preset(self.preset, source="", target=""))
        )
        figures = link | _given(self)
        return Ring(
            members=self.units,
            bandwidth_bytes_per_s=figures["bandwidth_bytes_per_s"] * self.wires,
            core_bandwidth_bytes_per_s=figures.get("core_bandwidth_bytes_per_s", inf),
            message_ns=figures["latency_ns"],
            has_trees=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar = contract.CLOSED

    schema_version: Annotated[contract.Version, Le(SCHEMA_VERSION)] = SCHEMA_VERSION
    devices: contract.Rows[_Device] = ()
    hosts: contract.Rows[_Host] = ()
    links: contract.Rows[_Link] = ()
    levels: contract.Rows[_Level] = ()
    dispatch: Dispatch = field(default_factory=Dispatch)
    sharing: Sharing = field(default_factory=Sharing)

    def machine(self, label: str) -> Machine:
        _check_count("devices", self.devices, 1, presets.MAX_DEVICES)
        _check_count("hosts", self.hosts, 0, presets.MAX_DEVICES)
        places = _places(self)
        links = _links(places, self.links)
        _check_pairs(places, links)
        _check_count("levels", self.levels, 0, _MAX_LEVELS)
        if len(self.devices) * prod(level.units for level in self.levels) > MAX_IN_LEVELS:
            raise untrusted.MisfitError(f"more than {MAX_IN_LEVELS:,} devices", "levels")
        cluster = Cluster(
            devices=tuple(row.device() for row in self.devices),
            hosts=tuple(row.device() for row in self.hosts),
            links=links,
            dispatch=self.dispatch,
            sharing=self.sharing,
        )
        return Machine(label=label, host=cluster, levels=tuple(row.ring() for row in self.levels))


def _given(row: Any, *others: str) -> dict[str, Any]:
    """Return the figures of a row that say anything."""
    values = {each.name: getattr(row, each.name) for each in fields(row)}
    left = {"preset", *others}
    return {key: each for key, each in values.items() if each is not None and key not in left}


def _check_speed(row: _Link | _Level) -> None:
    if row.preset is None and None in (row.latency_ns, row.bandwidth_bytes_per_s):
        raise ValueError("needs a preset, or else latency_ns and bandwidth_bytes_per_s")


def _check_count(name: str, rows: tuple[object, ...], least: int, most: int) -> None:
    if not least <= len(rows) <= most:
        raise untrusted.MisfitError(f"{len(rows)} {name}; there may be {least} to {most}", name)


def load_cluster(path: Path) -> Cluster:
    """Return the cluster of a file, every device of which is simulated.

    Raises:
        AdvisorError: it cannot be read, describes no cluster, or has levels above one.
    """
    return read_cluster(_content(path), str(path))


def load_machine(path: Path) -> Machine:
    """Return the cluster of a file with the levels above it.

    Raises:
        AdvisorError: it cannot be read, or describes no cluster.
    """
    return _read(_content(path), str(path))


def read_cluster(data: bytes, where: str) -> Cluster:
    """Return the cluster that the bytes of a file describe; ``where`` names it in errors.

    Raises:
        AdvisorError: they describe none, or one with levels above it.
    """
    machine = _read(data, where)
    if machine.levels:
        misfit = untrusted.MisfitError(presets.LEVELS_ARE_COMPARED, "levels[0]")
        raise AdvisorError(untrusted.told(where, misfit, data), hint=_HINT)
    return machine.host


def _content(path: Path) -> bytes:
    try:
        return untrusted.read_text_bytes(path)
    except untrusted.MisfitError as misfit:
        raise AdvisorError(f"{path}: {misfit}") from None


def _read(data: bytes, where: str) -> Machine:
    parsed = b""
    try:
        document, parsed = untrusted.parse_toml(data), data
        return contract.value_in(_File, document).machine(where)
    except untrusted.MisfitError as misfit:
        raise AdvisorError(untrusted.told(where, misfit, parsed), hint=_HINT) from None


def cluster_as_toml(cluster: Cluster) -> str:
    """Return the text of a file that `read_cluster` reads as the same cluster."""
    lines = [f"schema_version = {SCHEMA_VERSION}"]
    tables: dict[str, tuple[Device | Link, ...]] = {
        "devices": cluster.devices,
        "hosts": cluster.hosts,
        "links": cluster.links,
    }
    for name, rows in tables.items():
        for row in rows:
            lines += ["", f"[[{name}]]", *_assignments(row)]
    lines += ["", "[dispatch]", *_assignments(cluster.dispatch)]
    if cluster.sharing != Sharing():
        lines += ["", "[sharing]", *_assignments(cluster.sharing)]
    lines.append("")
    return "\n".join(lines)


def _from_toml(text: object) -> Cluster:
    try:
        return read_cluster(str(text).encode(), "cluster file")
    except AdvisorError as error:
        raise ValueError(error.message) from None


# A cluster that stands in JSON, as the text of its file.
ClusterText = Annotated[
    Cluster, PlainValidator(_from_toml), PlainSerializer(cluster_as_toml, return_type=str)
]


def _assignments(row: Device | Link | CopyWork | Dispatch | Sharing) -> Iterator[str]:
    """Yield the fields that say anything."""
    for column in fields(row):
        value = getattr(row, column.name)
        if value != column.default:
            yield f"{column.name} = {_written(value)}"


def _written(value: object) -> str:
    if isinstance(value, CopyWork):
        return f"{{ {', '.join(_assignments(value))} }}"
    # Numbers, lists and texts that can be printed are written alike in JSON and TOML.
    return json.dumps(value, ensure_ascii=False)


def _places(file: _File) -> dict[str, str]:
    """Return where every name stands, after checking that each is given once and hosts exist."""
    places: dict[str, str] = {}
    tables = {"devices": file.devices, "hosts": file.hosts}
    for table, rows in tables.items():
        for i, row in enumerate(rows):
            if row.name in places:
                raise untrusted.MisfitError(
                    f"{untrusted.shown(row.name)} is defined twice", f"{table}[{i}].name"
                )
            places[row.name] = f"{table}[{i}]"
    cpus = [row.name for rows in tables.values() for row in rows if row.device().kind == "CPU"]
    for i, device in enumerate(file.devices):
        others = [name for name in cpus if name != device.name]
        if device.host is not None and device.host not in others:
            problem = f"{untrusted.shown(device.host)} is not a CPU of this file"
            known = presets.there_are(others, device.host)
            raise untrusted.MisfitError(f"{problem}; {known}", f"devices[{i}].host")
    return places


def _links(places: Mapping[str, str], rows: Iterable[_Link]) -> tuple[Link, ...]:
    """Return the links of all tables, none of them given twice."""
    links: dict[tuple[str, str], Link] = {}
    for i, row in enumerate(rows):
        for key, end in row.ends().items():
            if end not in places:
                problem = f"{untrusted.shown(end)} is not a device or host of this file"
                raise untrusted.MisfitError(
                    f"{problem}; {presets.there_are(places, end)}", f"links[{i}].{key}"
                )
        try:
            found = row.links()
        except untrusted.MisfitError as misfit:
            raise misfit.inside(f"links[{i}]") from None
        for link in found:
            ends = (link.source, link.target)
            if ends in links:
                raise untrusted.MisfitError(f"{_arrow(*ends)} is defined twice", f"links[{i}]")
            links[ends] = link
    return tuple(links.values())


def _check_pairs(places: Mapping[str, str], links: tuple[Link, ...]) -> None:
    """Check that any end can send to any other: nothing else says what may be placed where."""
    linked = {(link.source, link.target) for link in links}
    for source, target in permutations(places, 2):
        if (source, target) not in linked:
            raise untrusted.MisfitError(
                f"no link goes {_arrow(source, target)}; "
                "each device and host needs one to each other",
                places[target],
            )


def _arrow(source: str, target: str) -> str:
    return f"from {untrusted.shown(source)} to {untrusted.shown(target)}"
