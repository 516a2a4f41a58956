"""Clusters in TOML, written by hand or by a calibration, and levels of many of one, by hand.

A file is data that may come from anywhere. Whatever it holds, reading it ends in a cluster in which
every device can send to every other, or in one error that names the line. The bounds on figures are
far outside what machines have: they catch units that were mistaken, such as GB/s for bytes/s.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import partial
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    check_version,
    content,
    integer,
    list_of,
    shown,
    within,
)
from placement_advisor.files.foreign_toml import line_of, parse
from placement_advisor.machine.cluster_tables import (
    LINK,
    columns,
    needed,
    one_of,
    read_device,
    read_dispatch,
    read_host,
    read_level,
    read_sharing,
)
from placement_advisor.machine.devices import (
    Basis,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Link,
    Sharing,
)
from placement_advisor.machine.hierarchy import MAX_IN_LEVELS, Machine
from placement_advisor.machine.presets import LEVELS_ARE_COMPARED, MAX_DEVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from placement_advisor.machine.cluster_tables import Readers
    from placement_advisor.machine.nccl_rings import Ring

T = TypeVar("T")

SCHEMA_VERSION = 1
# Of two units each they hold as many devices as there may be.
_MAX_LEVELS = 20
_HINT = (
    "a cluster file holds [[devices]] (name; preset, or kind and figures), [[hosts]] alike, and "
    "[[links]] (between, or source and target; preset, or latency_ns and bandwidth_bytes_per_s); "
    "above these, for compare-hardware, [[levels]] (units; preset, or figures as of links)"
)


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
    cluster, levels = _read(_content(path), str(path), _cluster_and_levels)
    return Machine(label=str(path), host=cluster, levels=levels)


def read_cluster(data: bytes, where: str) -> Cluster:
    """Return the cluster that the bytes of a file describe; ``where`` names it in errors.

    Raises:
        AdvisorError: they describe none, or one with levels above it.
    """
    return _read(data, where, _cluster_alone)


def _content(path: Path) -> bytes:
    try:
        return content(path)
    except MisfitError as misfit:
        raise AdvisorError(f"{path}: {misfit}") from None


def _read(data: bytes, where: str, meaning: Callable[[dict[str, Any]], T]) -> T:
    """Return what is meant by the document that bytes hold."""
    try:
        document = parse(data)
    except MisfitError as misfit:
        at = ", " if misfit.place else ": "
        raise AdvisorError(f"{where}{at}{misfit}", hint=_HINT) from None
    try:
        return meaning(document)
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


def _cluster_alone(document: dict[str, Any]) -> Cluster:
    cluster, levels = _cluster_and_levels(document)
    if levels:
        raise MisfitError(LEVELS_ARE_COMPARED, "levels[0]")
    return cluster


def _cluster_and_levels(document: dict[str, Any]) -> tuple[Cluster, tuple[Ring, ...]]:
    if "schema_version" in document:
        check_version(document, SCHEMA_VERSION)
    tables = columns(_FILE, document)
    devices, hosts = tables.get("devices", ()), tables.get("hosts", ())
    if not 1 <= len(devices) <= MAX_DEVICES:
        raise MisfitError(f"{len(devices)} devices; there may be 1 to {MAX_DEVICES}", "devices")
    if len(hosts) > MAX_DEVICES:
        raise MisfitError(f"{len(hosts)} hosts; there may be up to {MAX_DEVICES}", "hosts")
    places = _places(devices, hosts)
    links = within("links", partial(_links, places), tables.get("links", []))
    _check_pairs(places, links)
    levels = tables.get("levels", ())
    if len(levels) > _MAX_LEVELS:
        raise MisfitError(f"{len(levels)} levels; there may be up to {_MAX_LEVELS}", "levels")
    if len(devices) * prod(level.members for level in levels) > MAX_IN_LEVELS:
        raise MisfitError(f"more than {MAX_IN_LEVELS:,} devices", "levels")
    cluster = Cluster(
        devices=devices,
        hosts=hosts,
        links=links,
        dispatch=tables.get("dispatch", Dispatch()),
        sharing=tables.get("sharing", Sharing()),
    )
    return cluster, levels


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
            within(f"devices[{i}].host", partial(one_of, "CPU of this file", others), device.host)
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
    end = partial(one_of, "device or host of this file", places)
    readers: Readers = {"between": partial(list_of, end), "source": end, "target": end, **LINK}
    table = columns(readers, value)
    if "between" not in table:
        needed(table, "source", "target")
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
        needed(table, "latency_ns", "bandwidth_bytes_per_s")
        preset = Link(source="", target="", **{"basis": Basis.ASSUMED, **table})
    return [replace(preset, source=source, target=target, **table) for source, target in pairs]


def _arrow(source: str, target: str) -> str:
    return f"from {shown(source)} to {shown(target)}"


_FILE: Readers = {
    "schema_version": partial(integer, what="a version", low=1),
    "devices": partial(list_of, read_device),
    "hosts": partial(list_of, read_host),
    "links": as_list,
    "levels": partial(list_of, read_level),
    "dispatch": read_dispatch,
    "sharing": read_sharing,
}
