"""The lock file: the records of checked models, written to be read in a diff.

JSON with sorted keys and a line for each layer, cut tensor and device, so that a change of the
model changes the lines that it concerns. Whatever a file holds, reading it ends in records or in
one error that names the line, or the place in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Le
from pydantic import AfterValidator

from placement_advisor.check.record import MAX_CUTS, Cut, Part, Record
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import (
    CLOSED,
    ByName,
    Rows,
    Version,
    What,
    like,
    plain,
    value_of,
)
from placement_advisor.files.foreign_json import MisfitError, content

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 1
_CONFLICT = re.compile(rb"^(<{7}|={7}|>{7}|\|{7})( |\r?$)", re.MULTILINE)
_HINT = (
    "take it back from version control, or delete it and run `advisor check --update`; nothing "
    "else should write it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut(Cut):
    """Equal tensors between two devices, of which there are several ``times``."""

    times: Annotated[int, Ge(1), Le(MAX_CUTS), What(f"a number of copies from 1 to {MAX_CUTS}")] = 1


def _not_too_many(cuts: tuple[_Cut, ...]) -> tuple[_Cut, ...]:
    if sum(cut.times for cut in cuts) > MAX_CUTS:
        raise ValueError(f"more than {MAX_CUTS} tensors")
    return cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locked(Record):
    cuts: Annotated[Rows[_Cut], AfterValidator(_not_too_many)]

    @classmethod
    def of(cls, record: Record) -> _Locked:
        cuts = (like(_Cut, cut, times=times) for cut, times in Counter(record.cuts).items())
        return like(cls, record, cuts=tuple(cuts))

    def record(self) -> Record:
        cuts = (like(Cut, row) for row in self.cuts for _ in range(row.times))
        return like(Record, self, cuts=tuple(cuts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar = CLOSED

    schema_version: Annotated[Version, Le(SCHEMA_VERSION)]
    models: ByName[_Locked]


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
        found = value_of(_File, data).models
    except MisfitError as misfit:
        # What a newer advisor wrote is for a newer one to read.
        hint = None if "is newer" in misfit.problem else _HINT
        raise AdvisorError(f"{path}: {misfit}", hint=hint) from None
    return {model: locked.record() for model, locked in found.items()}


def lock_text(records: Mapping[str, Record]) -> str:
    """Return the content of a lock file; equal records give equal bytes."""
    models = {model: _Locked.of(record) for model, record in records.items()}
    document = plain(_File(schema_version=SCHEMA_VERSION, models=models))
    for locked in document["models"].values():
        for layer in locked["layers"].values():
            for part in layer.keys() & set(Part):
                devices = layer[part]
                layer[part] = devices[0] if len(devices) == 1 else tuple(devices)
    return _written(document, "") + "\n"


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
