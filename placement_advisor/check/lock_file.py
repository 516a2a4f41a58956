"""The files of a check: `[tool.advisor]` in pyproject.toml, and the lock file.

Paths in pyproject.toml are relative to it. The lock file is JSON with sorted keys and a line for
each layer, tensor that crosses and device, so that a change of the model changes the lines that
it concerns. Whatever a file holds, reading it gives a value, or one error that names file and
line.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, MinLen
from pydantic import AfterValidator, BeforeValidator, Field

from placement_advisor.check.causes import STEP_TOLERANCE, Limits
from placement_advisor.check.lock_record import MAX_CUTS, Cut, Part, Record
from placement_advisor.check.problem_codes import Place
from placement_advisor.defaults import AS_WRITTEN, LOCK_FILE
from placement_advisor.errors import AdvisorError
from placement_advisor.files import contract, untrusted
from placement_advisor.units import parse_bytes, parse_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


CONFIG_FILE = "pyproject.toml"

# Lists of a whole project's settings have lines that are longer than any of the advisor's.
_MAX_LINE_CHARS = 100_000
_MAX_FIGURE_CHARS = 500
_CONFIG_TABLE = "tool.advisor"
_EXAMPLE = f"""[{_CONFIG_TABLE}]
hardware = "2xV100-NVLink"
[[{_CONFIG_TABLE}.models]]
path = "model.py\""""


def _parsed(parse_text: Callable[[str], Any]) -> BeforeValidator:
    """Return what takes a text with a unit; errors tell all of it."""

    def parsed(value: object) -> Any:
        if not isinstance(value, str) or len(value) > _MAX_FIGURE_CHARS:
            raise ValueError(f"{untrusted.shown(value)} is not a string of a number and a unit")
        return parse_text(value)

    return BeforeValidator(parsed)


_Size = Annotated[int, _parsed(parse_bytes)]
_Share = Annotated[float, _parsed(parse_share)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    path: contract.Name
    placement: contract.Name = AS_WRITTEN
    batch_size: Annotated[contract.Positive, contract.What("a number of samples")] | None = None
    mode: Literal["train", "infer"] | None = None
    graph: contract.Name | None = None
    args: contract.Rows[contract.Text] = ()
    max_transfer_bytes: _Size | None = None
    max_peak_bytes: Annotated[_Size | None, Field(alias="max_peak_memory")] = None
    max_step_regression: _Share = STEP_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(_Model):
    """A model to check: where it is, how it is placed, and what it may cost.

    ``path`` is ``PATH[:NAME]``. ``placement`` is a family, ``as-written`` (the user's own
    `tf.device` scopes), ``auto`` (what is predicted to be best), or a placement file. ``graph`` is
    a graph file of the same step, for checks that run no model code. A script runs with ``args``.
    ``place`` is where all this stands.
    """

    place: Place

    @property
    def limits(self) -> Limits:
        """What its step may cost."""
        return contract.like(Limits, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckConfig:
    """What is checked, in the folder ``root``; ``place`` is where the hardware stands."""

    root: Path
    hardware: str
    place: Place
    models: tuple[ModelConfig, ...]

    @property
    def lock_file(self) -> Path:
        """Where the lock file is, or will be."""
        return self.root / LOCK_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    __pydantic_config__: ClassVar = contract.CLOSED

    hardware: contract.Name
    models: Annotated[contract.Rows[_Model], MinLen(1)]


def find_config(start: Path) -> Path:
    """Return the nearest pyproject.toml, from a folder upwards.

    Raises:
        AdvisorError: there is none.
    """
    for folder in (start, *start.parents):
        if os.path.isfile(folder / CONFIG_FILE):  # noqa: PTH113 - False where none can be entered
            return folder / CONFIG_FILE
    raise AdvisorError(f"no {CONFIG_FILE} in {start} or above", hint=f"write one with\n{_EXAMPLE}")


def read_config(path: Path) -> CheckConfig:
    """Read a pyproject.toml.

    Raises:
        AdvisorError: it cannot be read, or does not say what to check.
    """
    try:
        document = untrusted.parse_toml(data := untrusted.read_text_bytes(path), _MAX_LINE_CHARS)
    except untrusted.MisfitError as misfit:
        raise AdvisorError(untrusted.told(str(path), misfit)) from None
    tools = document.get("tool")
    table = tools.get("advisor") if isinstance(tools, dict) else None
    if table is None:
        raise AdvisorError(f"{path}: no [{_CONFIG_TABLE}]", hint=f"add\n{_EXAMPLE}")
    try:
        settings = untrusted.within(_CONFIG_TABLE, partial(contract.value_in, _Settings), table)
        paths = [model.path for model in settings.models]
        for i, model in enumerate(paths):
            if model in paths[:i]:
                raise untrusted.MisfitError(
                    f"{untrusted.shown(model)} is listed twice", f"{_CONFIG_TABLE}.models[{i}].path"
                )
    except untrusted.MisfitError as misfit:
        hint = "docs/how-to/ci.md lists all settings"
        raise AdvisorError(untrusted.told(str(path), misfit, data), hint=hint) from None

    def place(key: str) -> Place:
        return Place(path.name, untrusted.line_of(data, f"{_CONFIG_TABLE}.{key}") or 1)

    return CheckConfig(
        root=path.parent,
        hardware=settings.hardware,
        place=place("hardware"),
        models=tuple(
            contract.like(ModelConfig, model, place=place(f"models[{i}]"))
            for i, model in enumerate(settings.models)
        ),
    )


SCHEMA_VERSION = 1
_CONFLICT = re.compile(rb"^(<{7}|={7}|>{7}|\|{7})( |\r?$)", re.MULTILINE)
_LOCK_HINT = (
    "take it back from version control, or delete it and run `advisor check --update`; nothing "
    "else should write it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut(Cut):
    """Equal tensors between two devices, of which there are several ``times``."""

    times: Annotated[
        int, Ge(1), Le(MAX_CUTS), contract.What(f"a number of copies from 1 to {MAX_CUTS}")
    ] = 1


def _not_too_many(cuts: tuple[_Cut, ...]) -> tuple[_Cut, ...]:
    if sum(cut.times for cut in cuts) > MAX_CUTS:
        raise ValueError(f"more than {MAX_CUTS} tensors")
    return cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locked(Record):
    cuts: Annotated[contract.Rows[_Cut], AfterValidator(_not_too_many)]

    @classmethod
    def of(cls, record: Record) -> _Locked:
        cuts = (
            contract.like(_Cut, cut, times=times) for cut, times in Counter(record.cuts).items()
        )
        return contract.like(cls, record, cuts=tuple(cuts))

    def record(self) -> Record:
        cuts = (contract.like(Cut, row) for row in self.cuts for _ in range(row.times))
        return contract.like(Record, self, cuts=tuple(cuts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LockFile:
    __pydantic_config__: ClassVar = contract.CLOSED

    schema_version: Annotated[contract.Version, Le(SCHEMA_VERSION)]
    models: contract.ByName[_Locked]


def read_lock(path: Path) -> dict[str, Record]:
    """Return the records by model; none if there is no file.

    Raises:
        AdvisorError: the file cannot be read, or is none that holds what `lock_text` writes.
    """
    if not path.exists():
        return {}
    try:
        data = untrusted.read_text_bytes(path)
        if conflict := _CONFLICT.search(data):
            line = data.count(b"\n", 0, conflict.start()) + 1
            raise AdvisorError(
                f"{path}: merge conflict at line {line}",
                hint="take either side, then run `advisor check --update`",
            )
        found = contract.value_of(_LockFile, data).models
    except untrusted.MisfitError as misfit:
        # What a newer advisor wrote is for a newer one to read.
        hint = None if "is newer" in misfit.problem else _LOCK_HINT
        raise AdvisorError(f"{path}: {misfit}", hint=hint) from None
    return {model: locked.record() for model, locked in found.items()}


def lock_text(records: Mapping[str, Record]) -> str:
    """Return the content of a lock file; equal records give equal bytes."""
    models = {model: _Locked.of(record) for model, record in records.items()}
    document = contract.plain(_LockFile(schema_version=SCHEMA_VERSION, models=models))
    for locked in document["models"].values():
        for layer in locked["layers"].values():
            for part in layer.keys() & set(Part):
                devices = layer[part]
                layer[part] = devices[0] if len(devices) == 1 else tuple(devices)
    return _json_text(document, "") + "\n"


def _json_text(value: Any, indent: str) -> str:
    """Return JSON in which what holds no objects or lists of its own stands on one line.

    Tuples are lists that stay on the line of what holds them.
    """
    inner = value.values() if isinstance(value, dict) else value
    if not any(isinstance(each, dict | list) for each in inner):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    deeper = indent + "  "

    def item(each: Any) -> str:
        is_leaf = not isinstance(each, dict | list)
        return json.dumps(each, ensure_ascii=False) if is_leaf else _json_text(each, deeper)

    if isinstance(value, dict):
        opening, closing = "{", "}"
        rows = [f"{json.dumps(k, ensure_ascii=False)}: {item(value[k])}" for k in sorted(value)]
    else:
        opening, closing = "[", "]"
        rows = list(map(item, value))
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(rows) + f"\n{indent}{closing}"
