"""What is to be checked: `[tool.advisor]` of a project's pyproject.toml.

Paths in it are relative to the file. Whatever it holds, reading it ends in a `CheckConfig` or in
one error with file and line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.check.effects import Limits
from placement_advisor.check.problem import Place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
    content,
    integer,
    list_of,
    shown,
    text,
    within,
)
from placement_advisor.files.foreign_json import field as required
from placement_advisor.files.foreign_toml import line_of, parse
from placement_advisor.units import parse_bytes, parse_share
from placement_advisor.workload import MODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

FILE = "pyproject.toml"
LOCK_FILE = "placements.lock.json"

# Lists of a whole project's settings have lines that are longer than any of the advisor's.
_MAX_LINE_CHARS = 100_000
_TABLE = "tool.advisor"
_EXAMPLE = f"""[{_TABLE}]
hardware = "2xV100-NVLink"
[[{_TABLE}.models]]
path = "model.py\""""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model to check: where it is, how it is placed, and what it may cost.

    ``path`` is ``PATH[:NAME]``. ``placement`` is a family, ``as-written`` (the user's own
    `tf.device` scopes), ``auto`` (what is predicted to be best), or a placement file. ``graph`` is
    a graph file of the same step, for checks that run no model code. A script runs with ``args``.
    ``place`` is where all this stands.
    """

    path: str
    placement: str = AS_WRITTEN
    batch_size: int | None = None
    mode: str | None = None
    graph: str | None = None
    args: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    place: Place


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


def find_config(start: Path) -> Path:
    """Return the nearest pyproject.toml, from a folder upwards.

    Raises:
        AdvisorError: there is none.
    """
    for folder in (start, *start.parents):
        if os.path.isfile(folder / FILE):  # noqa: PTH113 - False where none can be entered
            return folder / FILE
    raise AdvisorError(f"no {FILE} in {start} or above", hint=f"write one with\n{_EXAMPLE}")


def read_config(path: Path) -> CheckConfig:
    """Read a pyproject.toml.

    Raises:
        AdvisorError: it cannot be read, or does not say what to check.
    """
    data = b""
    try:
        data = content(path)
        document = parse(data, _MAX_LINE_CHARS)
    except MisfitError as misfit:
        at = ", " if misfit.place else ": "
        raise AdvisorError(f"{path}{at}{misfit}") from None
    tools = document.get("tool")
    table = tools.get("advisor") if isinstance(tools, dict) else None
    if table is None:
        raise AdvisorError(f"{path}: no [{_TABLE}]", hint=f"add\n{_EXAMPLE}")
    try:
        return within(_TABLE, partial(_config, path, data), table)
    except MisfitError as misfit:
        line = line_of(data, misfit.place)
        at = ": " if line is None else f", line {line}: "
        raise AdvisorError(f"{path}{at}{misfit}", hint="docs/ci.md lists all settings") from None


def _config(path: Path, data: bytes, value: object) -> CheckConfig:
    table = _known(value, ("hardware", "models"))
    hardware = required(table, "hardware", _words)
    rows = required(table, "models", as_list)
    if not rows:
        raise MisfitError("no model", "models")
    models = []
    for i, row in enumerate(rows):
        place = Place(path.name, line_of(data, f"{_TABLE}.models[{i}]") or 1)
        models.append(within(f"models[{i}]", partial(_model, place), row))
        if models[-1].path in {model.path for model in models[:-1]}:
            raise MisfitError(f"{shown(models[-1].path)} is listed twice", f"models[{i}].path")
    return CheckConfig(
        root=path.parent,
        hardware=hardware,
        place=Place(path.name, line_of(data, f"{_TABLE}.hardware") or 1),
        models=tuple(models),
    )


def _model(place: Place, value: object) -> ModelConfig:
    readers: Mapping[str, Callable[[object], Any]] = {
        "path": _words,
        "placement": _words,
        "batch_size": lambda value: integer(value, "a number of samples", low=1),
        "mode": _mode,
        "graph": _words,
        "args": partial(list_of, text),
        "max_transfer_bytes": partial(_parsed, parse_bytes),
        "max_peak_memory": partial(_parsed, parse_bytes),
        "max_step_regression": partial(_parsed, parse_share),
    }
    table = _known(value, readers)
    required(table, "path", _words)
    found = {key: within(key, readers[key], item) for key, item in table.items()}
    limits = {
        name: found.pop(key)
        for key, name in (
            ("max_transfer_bytes", "max_transfer_bytes"),
            ("max_peak_memory", "max_peak_bytes"),
            ("max_step_regression", "max_step_regression"),
        )
        if key in found
    }
    return ModelConfig(**found, limits=Limits(**limits), place=place)


def _known(value: object, keys: Iterable[str]) -> dict[str, object]:
    """Return a table that has no other keys."""
    table, known = as_object(value), list(keys)
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise MisfitError(f"unknown key; {meant}", key if key.isprintable() else shown(key))
    return table


def _words(value: object) -> str:
    """Return a text that can name a file, and be told."""
    words = text(value)
    if not words or not words.isprintable():
        raise MisfitError(f"{shown(words)} is not a name of printable characters")
    return words


def _mode(value: object) -> str:
    if value not in MODES:
        raise MisfitError(f"{shown(value)} is not one of {', '.join(MODES)}")
    return str(value)


def _parsed(parse_text: Callable[[str], Any], value: object) -> Any:
    """Return what a text with a unit says; a number alone has none."""
    try:
        return parse_text(text(value))
    except ValueError as error:
        raise MisfitError(str(error)) from None
