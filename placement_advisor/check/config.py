"""What is to be checked: `[tool.advisor]` of a project's pyproject.toml.

Paths in it are relative to the file. Whatever it holds, reading it ends in a `CheckConfig` or in
one error with file and line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import MinLen
from pydantic import BeforeValidator, Field

from placement_advisor.check.effects import STEP_TOLERANCE, Limits
from placement_advisor.check.problem import Place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import (
    CLOSED,
    Name,
    Positive,
    Rows,
    Text,
    What,
    like,
    value_in,
)
from placement_advisor.files.foreign_json import MisfitError, content, shown, within
from placement_advisor.files.foreign_toml import line_of, parse, told
from placement_advisor.units import parse_bytes, parse_share

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE = "pyproject.toml"
LOCK_FILE = "placements.lock.json"

# Lists of a whole project's settings have lines that are longer than any of the advisor's.
_MAX_LINE_CHARS = 100_000
_MAX_FIGURE_CHARS = 500
_TABLE = "tool.advisor"
_EXAMPLE = f"""[{_TABLE}]
hardware = "2xV100-NVLink"
[[{_TABLE}.models]]
path = "model.py\""""


def _parsed(parse_text: Callable[[str], Any]) -> BeforeValidator:
    """Return what takes a text with a unit; errors tell all of it."""

    def parsed(value: object) -> Any:
        if not isinstance(value, str) or len(value) > _MAX_FIGURE_CHARS:
            raise ValueError(f"{shown(value)} is not a string of a number and a unit")
        return parse_text(value)

    return BeforeValidator(parsed)


_Size = Annotated[int, _parsed(parse_bytes)]
_Share = Annotated[float, _parsed(parse_share)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    path: Name
    placement: Name = AS_WRITTEN
    batch_size: Annotated[Positive, What("a number of samples")] | None = None
    mode: Literal["train", "infer"] | None = None
    graph: Name | None = None
    args: Rows[Text] = ()
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
        return like(Limits, self)


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
    __pydantic_config__: ClassVar = CLOSED

    hardware: Name
    models: Annotated[Rows[_Model], MinLen(1)]


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
    try:
        document = parse(data := content(path), _MAX_LINE_CHARS)
    except MisfitError as misfit:
        raise AdvisorError(told(str(path), misfit)) from None
    tools = document.get("tool")
    table = tools.get("advisor") if isinstance(tools, dict) else None
    if table is None:
        raise AdvisorError(f"{path}: no [{_TABLE}]", hint=f"add\n{_EXAMPLE}")
    try:
        settings = within(_TABLE, partial(value_in, _Settings), table)
        paths = [model.path for model in settings.models]
        for i, model in enumerate(paths):
            if model in paths[:i]:
                raise MisfitError(f"{shown(model)} is listed twice", f"{_TABLE}.models[{i}].path")
    except MisfitError as misfit:
        hint = "docs/ci.md lists all settings"
        raise AdvisorError(told(str(path), misfit, data), hint=hint) from None

    def place(key: str) -> Place:
        return Place(path.name, line_of(data, f"{_TABLE}.{key}") or 1)

    return CheckConfig(
        root=path.parent,
        hardware=settings.hardware,
        place=place("hardware"),
        models=tuple(
            like(ModelConfig, model, place=place(f"models[{i}]"))
            for i, model in enumerate(settings.models)
        ),
    )
