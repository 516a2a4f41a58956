"""Tables of a cluster file: devices, what links carry, levels, and figures within bounds."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
    boolean,
    integer,
    list_of,
    shown,
    text,
    within,
)
from placement_advisor.files.limits import MAX_BYTES
from placement_advisor.machine.devices import (
    Basis,
    CopyWork,
    Device,
    Dispatch,
    Link,
    Sharing,
)
from placement_advisor.machine.gpu_facts import gpus_with_facts
from placement_advisor.machine.hierarchy import MAX_IN_LEVELS
from placement_advisor.machine.nccl_rings import Ring
from placement_advisor.machine.presets import device_preset, link_preset, networks, there_are
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Readers = Mapping[str, Callable[[object], Any]]

# Names stand in tables and plots.
MAX_NAME_CHARS = 100
# Of which a curve has a slope.
_MIN_COPIES = 2
# Whoever gives such a figure of a device means another one than its preset's datasheet describes.
_OF_DATASHEET = frozenset(
    {"kind", "peak_flops_per_s", "matrix_flops_per_s", "memory_bandwidth_bytes_per_s"}
)


def columns(readers: Readers, value: object) -> dict[str, Any]:
    """Return what the readers make of the keys of a table.

    Raises:
        MisfitError: it has others.
    """
    table = as_object(value)
    for key in table:
        if key not in readers:
            raise MisfitError(f"unknown key; {there_are(readers, key)}", shown(key)[1:-1])
    return {key: within(key, readers[key], item) for key, item in table.items()}


def needed(table: dict[str, Any], *keys: str) -> None:
    """Check that a table has these keys.

    Raises:
        MisfitError: it has not.
    """
    for key in keys:
        if key not in table:
            raise MisfitError(f"no {key}")


def read_device(value: object) -> Device:
    """Return the device that a table describes.

    Raises:
        MisfitError: it describes none.
    """
    return _device(_DEVICE, value)


def read_host(value: object) -> Device:
    """Return the host of devices that a table describes.

    Raises:
        MisfitError: it describes none.
    """
    return _device(_HOST, value)


def read_level(value: object) -> Ring:
    """Return the level of hosts, or of groups of hosts, that a table describes.

    Raises:
        MisfitError: it describes none.
    """
    table = columns(_LEVEL, value)
    needed(table, "units")
    preset: Link | None = table.get("preset")
    if preset is None:
        needed(table, "latency_ns", "bandwidth_bytes_per_s")
    else:
        table.setdefault("latency_ns", preset.latency_ns)
        table.setdefault("bandwidth_bytes_per_s", preset.bandwidth_bytes_per_s)
    return Ring(
        members=table["units"],
        bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"] * table.get("wires", 1),
        core_bandwidth_bytes_per_s=table.get("core_bandwidth_bytes_per_s", inf),
        message_ns=table["latency_ns"],
        has_trees=True,
    )


def read_dispatch(value: object) -> Dispatch:
    """Return how steps are driven.

    Raises:
        MisfitError: the table says something else.
    """
    return Dispatch(**columns(_DISPATCH, value))


def read_sharing(value: object) -> Sharing:
    """Return what devices share.

    Raises:
        MisfitError: the table says something else.
    """
    return Sharing(**columns(_SHARING, value))


def _device(readers: Readers, value: object) -> Device:
    table = columns(readers, value)
    needed(table, "name")
    preset: Device | None = table.pop("preset", None)
    if preset is not None:
        if not _OF_DATASHEET.isdisjoint(table):
            preset = replace(preset, gpu=None)
        return replace(preset, **table)
    needed(table, "kind")
    return Device(**table)


def one_of(what: str, known: Collection[str], value: object) -> str:
    """Return the word, one of the ``known``.

    Raises:
        MisfitError: it is none of them.
    """
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


def _network_preset(value: object) -> Link:
    return _link_preset(one_of("network", networks(rdma=True), value))


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
    "kind": partial(one_of, "kind", ("GPU", "CPU")),
    "peak_flops_per_s": _flops,
    "matrix_flops_per_s": _flops,
    "memory_bandwidth_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "memory_bytes": _bytes,
    "launch_overhead_ns": _ns,
    "launches_ahead": boolean,
    "gpu": lambda value: one_of("GPU with a datasheet", gpus_with_facts(), value),
}
_DEVICE: Readers = {"host": _name, "remote_start_ns": _ns, "remote_end_ns": _ns, **_HOST}
_COPY_WORK: Readers = {
    "per_copy_ns": _ns,
    "ns_per_byte": partial(_number, "ns", 0, 1e3),
}
LINK: Readers = {
    "preset": _link_preset,
    "latency_ns": _ns,
    "bandwidth_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "basis": lambda value: Basis(one_of("basis", list(Basis), value)),
    "channel": _name,
    "curve": _curve,
    "sender": lambda value: CopyWork(**columns(_COPY_WORK, value)),
    "receiver": lambda value: CopyWork(**columns(_COPY_WORK, value)),
    "request_ns": _ns,
    "wake_ns": _ns,
    "stream_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
}
_LEVEL: Readers = {
    "units": partial(
        integer, what=f"a number of units from 1 to {MAX_IN_LEVELS:,}", low=1, high=MAX_IN_LEVELS
    ),
    "preset": _network_preset,
    "latency_ns": _ns,
    "bandwidth_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "wires": partial(
        integer, what=f"a number of wires from 1 to {MAX_IN_LEVELS:,}", low=1, high=MAX_IN_LEVELS
    ),
    "core_bandwidth_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e18),
}
_DISPATCH: Readers = {field.name: _ns for field in fields(Dispatch)}
_SHARING: Readers = {
    "split_ratio": partial(_number, "times", 1, 100),
    "memory_bytes_per_s": partial(_number, "bytes/s", 1e6, 1e15),
    "memory_ratio": partial(_number, "times", 1, 100),
}
