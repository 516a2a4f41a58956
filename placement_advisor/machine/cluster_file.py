"""Clusters in TOML, written by hand or by a calibration.

A file is data that may come from anywhere. Whatever it holds, reading it ends in a cluster in which
every device can send to every other, or in one error that names the line. The bounds on figures are
far outside what machines have: they catch units that were mistaken, such as GB/s for bytes/s.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Any, TypeVar

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
    boolean,
    check_version,
    content,
    integer,
    list_of,
    shown,
    text,
    within,
)
from placement_advisor.files.foreign_toml import line_of, parse
from placement_advisor.files.limits import MAX_BYTES
from placement_advisor.machine.devices import (
    Basis,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Link,
    Sharing,
)
from placement_advisor.machine.gpu_facts import gpus_with_facts
from placement_advisor.machine.presets import MAX_DEVICES, device_preset, link_preset, there_are
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    Readers = Mapping[str, Callable[[object], Any]]

T = TypeVar("T")

SCHEMA_VERSION = 1
# Names stand in tables and plots.
MAX_NAME_CHARS = 100
# Of which a curve has a slope.
_MIN_COPIES = 2
# Whoever gives such a figure of a device means another one than its preset's datasheet describes.
_OF_DATASHEET = frozenset(
    {"kind", "peak_flops_per_s", "matrix_flops_per_s", "memory_bandwidth_bytes_per_s"}
)

_HINT = (
    "a cluster file holds [[devices]] (name; preset, or kind and figures), [[hosts]] alike, and "
    "[[links]] (between, or source and target; preset, or latency_ns and bandwidth_bytes_per_s)"
)


def load_cluster(path: Path) -> Cluster:
    """Return the cluster of a file.

    Raises:
        AdvisorError: it cannot be read, or describes no cluster.
    """
    try:
        data = content(path)
    except MisfitError as misfit:
        raise AdvisorError(f"{path}: {misfit}") from None
    return read_cluster(data, str(path))


def read_cluster(data: bytes, where: str) -> Cluster:
    """Return the cluster that the bytes of a file describe; ``where`` names it in errors.

    Raises:
        AdvisorError: they describe none.
    """
    try:
        document = parse(data)
    except MisfitError as misfit:
        at = ", " if misfit.place else ": "
        raise AdvisorError(f"{where}{at}{misfit}", hint=_HINT) from None
    try:
        return _cluster(document)
    except MisfitError as misfit:
        line = line_of(data, misfit.place)
        at = ": " if line is None else f", line {line}: "
        raise AdvisorError(f"{where}{at}{misfit}", hint=_HINT) from None


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


def _assignments(row: Device | Link | CopyWork | Dispatch | Sharing) -> Iterator[str]:
    """Yield the fields that say anything."""
    for column in fields(row):
        value = getattr(row, column.name)
        if value != column.default:
            yield f"{column.name} = {_written(value)}"


def _written(value: object) -> str:
    if isinstance(value, str):
        # Texts that can be printed are escaped alike in JSON and TOML.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, CopyWork):
        return f"{{ {', '.join(_assignments(value))} }}"
    if isinstance(value, tuple):
        return str([list(point) for point in value])
    # The repr() of numpy's floats is not valid TOML.
    if isinstance(value, bool):
        return str(value).lower()
    return repr(float(value)) if isinstance(value, float) else str(value)


def _cluster(document: dict[str, Any]) -> Cluster:
    if "schema_version" in document:
        check_version(document, SCHEMA_VERSION)
    tables = _fields(_FILE, document)
    devices, hosts = tables.get("devices", ()), tables.get("hosts", ())
    if not 1 <= len(devices) <= MAX_DEVICES:
        raise MisfitError(f"{len(devices)} devices; there may be 1 to {MAX_DEVICES}", "devices")
    if len(hosts) > MAX_DEVICES:
        raise MisfitError(f"{len(hosts)} hosts; there may be up to {MAX_DEVICES}", "hosts")
    places = _places(devices, hosts)
    links = within("links", partial(_links, places), tables.get("links", []))
    _check_pairs(places, links)
    return Cluster(
        devices=devices,
        hosts=hosts,
        links=links,
        dispatch=tables.get("dispatch", Dispatch()),
        sharing=tables.get("sharing", Sharing()),
    )


def _fields(readers: Readers, value: object) -> dict[str, Any]:
    """Return what the readers make of the keys of a table, which has no others."""
    table = as_object(value)
    for key in table:
        if key not in readers:
            raise MisfitError(f"unknown key; {there_are(readers, key)}", shown(key)[1:-1])
    return {key: within(key, readers[key], item) for key, item in table.items()}


def _needed(table: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in table:
            raise MisfitError(f"no {key}")


def _device(readers: Readers, value: object) -> Device:
    table = _fields(readers, value)
    _needed(table, "name")
    preset: Device | None = table.pop("preset", None)
    if preset is not None:
        if not _OF_DATASHEET.isdisjoint(table):
            preset = replace(preset, gpu=None)
        return replace(preset, **table)
    _needed(table, "kind")
    return Device(**table)


def _places(devices: tuple[Device, ...], hosts: tuple[Device, ...]) -> dict[str, str]:
    """Return where every name stands, after checking that each is given once and hosts exist."""
    places: dict[str, str] = {}
    for table, rows in (("devices", devices), ("hosts", hosts)):
        for i, device in enumerate(rows):
            if device.name in places:
                raise MisfitError(f"{shown(device.name)} is defined twice", f"{table}[{i}].name")
            places[device.name] = f"{table}[{i}]"
    cpus = [device.name for device in (*devices, *hosts) if device.kind == "CPU"]
    for i, device in enumerate(devices):
        if device.host is not None:
            others = [name for name in cpus if name != device.name]
            within(f"devices[{i}].host", partial(_one_of, "CPU of this file", others), device.host)
    return places


def _links(places: Mapping[str, str], value: object) -> tuple[Link, ...]:
    """Return the links of all tables, none of them given twice."""
    links: dict[tuple[str, str], Link] = {}
    for i, row in enumerate(as_list(value)):
        for link in within(f"[{i}]", partial(_links_of_table, places), row):
            ends = (link.source, link.target)
            if ends in links:
                raise MisfitError(f"{_arrow(*ends)} is defined twice", f"[{i}]")
            links[ends] = link
    return tuple(links.values())


def _check_pairs(places: Mapping[str, str], links: tuple[Link, ...]) -> None:
    """Check that any end can send to any other: nothing else says what may be placed where."""
    linked = {(link.source, link.target) for link in links}
    for source, target in permutations(places, 2):
        if (source, target) not in linked:
            raise MisfitError(
                f"no link goes {_arrow(source, target)}; "
                "each device and host needs one to each other",
                places[target],
            )


def _links_of_table(places: Mapping[str, str], value: object) -> list[Link]:
    end = partial(_one_of, "device or host of this file", places)
    readers: Readers = {"between": partial(list_of, end), "source": end, "target": end, **_LINK}
    table = _fields(readers, value)
    if "between" not in table:
        _needed(table, "source", "target")
        ends = (table.pop("source"), table.pop("target"))
        pairs = [ends]
    elif {"source", "target"} & set(table):
        raise MisfitError("stands for source and target, which may not be given too", "between")
    else:
        ends = table.pop("between")
        pairs = list(permutations(ends, 2))
    if not pairs or len(set(ends)) < len(ends):
        raise MisfitError("a link needs ends that differ")
    preset: Link | None = table.pop("preset", None)
    if preset is None:
        _needed(table, "latency_ns", "bandwidth_bytes_per_s")
        preset = Link(source="", target="", **{"basis": Basis.ASSUMED, **table})
    return [replace(preset, source=source, target=target, **table) for source, target in pairs]


def _arrow(source: str, target: str) -> str:
    return f"from {shown(source)} to {shown(target)}"


def _one_of(what: str, known: Collection[str], value: object) -> str:
    word = text(value)
    if word not in known:
        raise MisfitError(f"{shown(word)} is not a {what}; {there_are(known, word)}")
    return word


def _name(value: object) -> str:
    name = text(value)
    if not name.isprintable() or not 1 <= len(name) <= MAX_NAME_CHARS:
        raise MisfitError(
            f"{shown(name)} is not a name of 1 to {MAX_NAME_CHARS} printable characters"
        )
    return name


def _number(what: str, low: float, high: float, value: object) -> float:
    """Return the value as a number within bounds, which NaN and infinity are not."""
    if type(value) not in (int, float) or not low <= value <= high:  # type: ignore[operator]
        raise MisfitError(f"{shown(value)} is not a number of {what} from {low:g} to {high:g}")
    return float(value)  # type: ignore[arg-type]


def _curve(value: object) -> tuple[tuple[int, int], ...]:
    points = list_of(_point, value)
    if len(points) < _MIN_COPIES:
        raise MisfitError(f"{len(points)} copies; a curve needs {_MIN_COPIES}")
    for i, (before, point) in enumerate(pairwise(points), start=1):
        if point[0] <= before[0] or point[1] < before[1]:
            raise MisfitError("needs more bytes than the copy before, and no fewer ns", f"[{i}]")
    return points


def _point(value: object) -> tuple[int, int]:
    point = as_list(value)
    if len(point) != len(_POINT):
        raise MisfitError(f"{shown(value)} is not a pair of bytes and ns")
    size_bytes, time_ns = (read(number) for read, number in zip(_POINT, point, strict=True))
    return size_bytes, time_ns


def _device_preset(value: object) -> Device:
    try:
        return device_preset(text(value), name="")
    except AdvisorError as error:
        raise MisfitError(error.message) from None


def _link_preset(value: object) -> Link:
    try:
        return link_preset(text(value), source="", target="")
    except AdvisorError as error:
        raise MisfitError(error.message) from None


_ns = partial(integer, what="a whole number of ns from 0 to 10^11", high=100 * NS_PER_S)
_bytes = partial(integer, what="a number of bytes from 10^6 to 10^15", low=10**6, high=MAX_BYTES)
_POINT = (partial(integer, what="a number of bytes from 0 to 10^15", high=MAX_BYTES), _ns)
_flops = partial(_number, "flop/s", 1e6, 1e18)

_HOST: Readers = {
    "name": _name,
    "preset": _device_preset,
    "kind": partial(_one_of, "kind", ("GPU", "CPU")),
    "peak_flops_per_s": _flops,
    "matrix_flops_per_s": _flops,
    "memory_bandwidth_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "memory_bytes": _bytes,
    "launch_overhead_ns": _ns,
    "launches_ahead": boolean,
    "gpu": lambda value: _one_of("GPU with a datasheet", gpus_with_facts(), value),
}
_DEVICE: Readers = {"host": _name, "remote_start_ns": _ns, "remote_end_ns": _ns, **_HOST}
_COPY_WORK: Readers = {
    "per_copy_ns": _ns,
    "ns_per_byte": partial(_number, "ns", 0, 1e3),
}
_LINK: Readers = {
    "preset": _link_preset,
    "latency_ns": _ns,
    "bandwidth_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "basis": lambda value: Basis(_one_of("basis", list(Basis), value)),
    "channel": _name,
    "curve": _curve,
    "sender": lambda value: CopyWork(**_fields(_COPY_WORK, value)),
    "receiver": lambda value: CopyWork(**_fields(_COPY_WORK, value)),
    "request_ns": _ns,
    "wake_ns": _ns,
    "stream_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
}
_DISPATCH: Readers = {field.name: _ns for field in fields(Dispatch)}
_SHARING: Readers = {
    "split_ratio": partial(_number, "times", 1, 100),
    "memory_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "memory_ratio": partial(_number, "times", 1, 100),
}
_FILE: Readers = {
    "schema_version": partial(integer, what="a version", low=1),
    "devices": partial(list_of, partial(_device, _DEVICE)),
    "hosts": partial(list_of, partial(_device, _HOST)),
    "links": as_list,
    "dispatch": lambda value: Dispatch(**_fields(_DISPATCH, value)),
    "sharing": lambda value: Sharing(**_fields(_SHARING, value)),
}
