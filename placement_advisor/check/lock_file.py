"""The lock file: the records of checked models, written to be read in a diff.

JSON with sorted keys and a line for each layer, cut tensor and device, so that a change of the
model changes the lines that it concerns. Whatever a file holds, reading it ends in records or in
one error that names the line, or the place in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.check.record import (
    MAX_CUTS,
    Cut,
    LayerRecord,
    Part,
    Record,
    Standing,
    Versions,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
    check_version,
    content,
    field,
    integer,
    list_of,
    object_of,
    parse,
    shown,
    text,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import StrEnum
    from pathlib import Path

SCHEMA_VERSION = 1
_CONFLICT = re.compile(rb"^(<{7}|={7}|>{7}|\|{7})( |\r?$)", re.MULTILINE)
_HINT = (
    "take it back from version control, or delete it and run `advisor check --update`; nothing "
    "else should write it"
)


def read_lock(path: Path) -> dict[str, Record]:
    """Return the records by model; none if there is no file.

    Raises:
        AdvisorError: the file cannot be read, or is none that holds what `lock_text` writes.
    """
    if not path.exists():
        return {}
    try:
        data = content(path)
        if conflict := _CONFLICT.search(data):
            line = data.count(b"\n", 0, conflict.start()) + 1
            raise AdvisorError(
                f"{path}: merge conflict at line {line}",
                hint="take either side, then run `advisor check --update`",
            )
        document = as_object(parse(data))
        check_version(document, SCHEMA_VERSION)
        as_object(document, ("schema_version", "models"))
        return field(document, "models", partial(object_of, _record))
    except MisfitError as misfit:
        # What a newer advisor wrote is for a newer one to read.
        hint = None if "is newer" in misfit.problem else _HINT
        raise AdvisorError(f"{path}: {misfit}", hint=hint) from None


def lock_text(records: Mapping[str, Record]) -> str:
    """Return the content of a lock file; equal records give equal bytes."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "models": {name: record_as_json(record) for name, record in records.items()},
    }
    return _written(document, "") + "\n"


def record_as_json(record: Record) -> dict[str, Any]:
    """Return a record as it stands in a lock file."""
    versions = record.versions
    return {
        "hardware": versions.hardware,
        "devices": versions.devices,
        "tensorflow": versions.tensorflow,
        "advisor": versions.advisor,
        "placement": record.placement,
        "graph": record.graph,
        "placed": record.placed,
        "layers": {
            name: {
                **{
                    part.value: devices[0] if len(devices) == 1 else devices
                    for part, devices in layer.devices.items()
                },
                "made_of": layer.fingerprint,
                "busy_us": layer.busy_us,
            }
            for name, layer in record.layers.items()
        },
        "on_host": {layer: list(kinds) for layer, kinds in record.on_host.items()},
        "cuts": [
            {
                "tensor": cut.tensor,
                "from": cut.source,
                "to": cut.target,
                "bytes": cut.size_bytes,
                **({"times": times} if times > 1 else {}),
            }
            for cut, times in Counter(record.cuts).items()
        ],
        "copies_per_step": record.copies,
        "bytes_across_per_step": record.bytes_across,
        "step_us": record.step_us,
        "single_step_us": record.single_step_us,
        "peak_memory_bytes": {name: dict(held) for name, held in record.memory_bytes.items()},
        "verdict": record.standing.value,
    }


def _written(value: Any, indent: str) -> str:
    """Return JSON in which what holds no objects or lists of its own stands on one line.

    Tuples are lists that stay on the line of what holds them.
    """
    inner = value.values() if isinstance(value, dict) else value
    if not any(isinstance(each, dict | list) for each in inner):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    deeper = indent + "  "

    def item(each: Any) -> str:
        is_leaf = not isinstance(each, dict | list)
        return json.dumps(each, ensure_ascii=False) if is_leaf else _written(each, deeper)

    if isinstance(value, dict):
        opening, closing = "{", "}"
        rows = [f"{json.dumps(k, ensure_ascii=False)}: {item(value[k])}" for k in sorted(value)]
    else:
        opening, closing = "[", "]"
        rows = list(map(item, value))
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(rows) + f"\n{indent}{closing}"


def _record(value: object) -> Record:
    table = as_object(value)
    taken: set[str] = set()

    def read(key: str, reader: Callable[[object], Any]) -> Any:
        taken.add(key)
        return field(table, key, reader)

    found = Record(
        versions=Versions(
            hardware=read("hardware", text),
            devices=read("devices", text),
            tensorflow=read("tensorflow", text),
            advisor=read("advisor", text),
        ),
        placement=read("placement", text),
        graph=read("graph", text),
        placed=read("placed", text),
        layers=read("layers", partial(object_of, _layer)),
        on_host=read("on_host", partial(object_of, partial(list_of, text))),
        cuts=read("cuts", lambda rows: tuple(_rows(rows))),
        copies=read("copies_per_step", _count),
        bytes_across=read("bytes_across_per_step", _count),
        step_us=read("step_us", _count),
        single_step_us=read("single_step_us", _count),
        memory_bytes=read("peak_memory_bytes", partial(object_of, partial(object_of, _count))),
        standing=read("verdict", partial(_member, Standing)),
    )
    as_object(table, taken)
    return found


def _layer(value: object) -> LayerRecord:
    table = as_object(value, (*Part, "made_of", "busy_us"))
    devices = {part: within(part.value, _devices, table[part]) for part in Part if part in table}
    if not devices:
        raise MisfitError("no device")
    return LayerRecord(
        devices=devices,
        fingerprint=field(table, "made_of", text),
        busy_us=field(table, "busy_us", _count),
    )


def _devices(value: object) -> tuple[str, ...]:
    """Return devices of a part of a layer: one as a text, several as a list."""
    devices = list_of(text, value) if isinstance(value, list) else (text(value),)
    if not devices:
        raise MisfitError("no device")
    return devices


def _rows(value: object) -> list[Cut]:
    found: list[Cut] = []
    for i, row in enumerate(as_list(value)):
        found += within(f"[{i}]", _cuts, row)
        if len(found) > MAX_CUTS:
            raise MisfitError(f"more than {MAX_CUTS} tensors")
    return found


def _cuts(value: object) -> list[Cut]:
    """Return the cuts of a row; equal ones stand in one."""
    table = as_object(value, ("tensor", "from", "to", "bytes", "times"))
    times = within("times", _times, table.get("times", 1))
    cut = Cut(
        size_bytes=field(table, "bytes", lambda size: None if size is None else _count(size)),
        tensor=field(table, "tensor", text),
        source=field(table, "from", text),
        target=field(table, "to", text),
    )
    return [cut] * times


def _times(value: object) -> int:
    return integer(value, "a number of copies", low=1, high=MAX_CUTS)


def _count(value: object) -> int:
    return integer(value, "a count")


def _member(kinds: type[StrEnum], value: object) -> StrEnum:
    if not isinstance(value, str) or value not in list(kinds):
        raise MisfitError(f"{shown(value)} is not one of {', '.join(kinds)}")
    return kinds(value)
