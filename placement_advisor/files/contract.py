"""Contracts: JSON that is a frozen dataclass, written and read back by Pydantic.

The fields of a contract are the keys of an object, in their order; one that is a keyword of Python
ends in ``_``. A field with a default may be absent from the JSON; all others are there, null where
they are None. Units are in names, bounds in types, and what a field means is in the docstring below
it. The first type of a contract has `STRICT` as its ``__pydantic_config__``, which all types within
it follow.

Whatever a file holds, reading it ends in a value of its type, or in one `MisfitError` that says at
which place the first thing is wrong. Left out: keys that a type does not have, as a newer version
may have written them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import ConfigDict, FailFast, TypeAdapter, ValidationError

from placement_advisor.files.foreign_json import (
    MAX_INTEGER,
    MAX_TEXT_CHARS,
    MisfitError,
    check_size,
    content,
    parse,
    shown,
)
from placement_advisor.files.limits import MAX_NS

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

Ns = Annotated[int, Ge(0), Le(MAX_NS)]
Count = Annotated[int, Ge(0), Le(MAX_INTEGER)]
Positive = Annotated[int, Ge(1), Le(MAX_INTEGER)]
NotNegative = Annotated[float, Ge(0.0)]
Share = Annotated[float, Ge(0.0), Le(1.0)]
# A nanosecond against a second: no two placements of a step lie so far apart.
Ratio = Annotated[float, Gt(1e-9), Lt(1e9)]
Text = Annotated[str, MaxLen(MAX_TEXT_CHARS)]
# May quote what a process printed, or name every layer.
Prose = Annotated[str, MaxLen(100_000)]


class _FirstAlone(FailFast):
    """Ends with the first wrong row: errors of a million would not fit into memory."""

    def __hash__(self) -> int:  # `Rows[Text] | None` asks for it.
        return hash(type(self))


Rows = Annotated[tuple[T, ...], _FirstAlone()]
ByName = Annotated[Mapping[str, T], _FirstAlone()]

STRICT = ConfigDict(
    strict=True,
    extra="ignore",
    allow_inf_nan=False,
    alias_generator=lambda name: name.rstrip("_"),
    serialize_by_alias=True,
)

_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def like(kind: type[T], value: object, /, **others: Any) -> T:
    """Return a value of a contract with what another one has by the same names, and the others."""
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(value, name) for name in names}, **others)


def plain(value: object) -> dict[str, Any]:
    """Return a value of a contract as JSON has it."""
    found: dict[str, Any] = _adapter(type(value)).dump_python(
        value, mode="json", exclude_defaults=True
    )
    return found


def json_text(value: object) -> str:
    """Return a value of a contract as the text of a file."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"


def read(kind: type[T], path: Path) -> T:
    """Return the value of a contract that a file holds.

    Raises:
        MisfitError: it cannot be read, or holds none.
    """
    return value_of(kind, content(path))


def value_of(kind: type[T], data: bytes) -> T:
    """Return the value of a contract that a text holds.

    Raises:
        MisfitError: it holds none.
    """
    check_size(data)
    try:
        found: T = _adapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    else:
        return found
    if first["type"] == "json_invalid":
        parse(data)  # It says so in our words, but for what Python takes for JSON.
    raise _misfit(first)


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:  # One takes up to a tenth of a second to build.
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _misfit(error: Any) -> MisfitError:
    """Return in our words what Pydantic has found first."""
    place, kind, bounds = list(error["loc"]), error["type"], error.get("ctx", {})
    if kind == "missing":
        missing = place.pop()
        if isinstance(missing, str):
            return MisfitError(f"no field {missing!r}", _place(place))
        kind = "too_short"  # Of a pair that has one.
    if place == ["schema_version"] and kind == "less_than_equal":
        problem = (
            f"{shown(error['input'])} is newer than the {bounds['le']} that this advisor reads; "
            "update it"
        )
        return MisfitError(problem, "schema_version")
    if place == ["schema_version"] and kind == "greater_than_equal":
        problem = (
            f"{shown(error['input'])} is older than the {bounds['ge']} that this advisor reads; "
            "have the file written anew"
        )
        return MisfitError(problem, "schema_version")
    if kind == "value_error":  # What a type says of its values together.
        return MisfitError(str(bounds["error"]), _place(place))
    if kind == "json_invalid":
        return MisfitError(f"not valid JSON: {bounds['error']}")
    if kind == "string_too_long":
        problem = f"{shown(error['input'])} has more than {bounds['max_length']:,} characters"
        return MisfitError(problem, _place(place))
    what = _WHAT.get(kind) or _expected(place, bounds)
    return MisfitError(f"{shown(error['input'])} is {what}", _place(place))


_WHAT = {
    "dataclass_type": "not an object",
    "dict_type": "not an object",
    "tuple_type": "not a list",
    "string_type": "not a string",
    "bool_type": "neither true nor false",
    "string_pattern_mismatch": "not of its form",
    "too_short": "too short",
    "too_long": "too long",
    "float_type": "not a number",
    "finite_number": "not a number",
}
_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}


def _expected(place: list[int | str], bounds: Mapping[str, Any]) -> str:
    if "expected" in bounds:
        return f"not {bounds['expected'].replace(chr(39), '')}"
    for word, bound in bounds.items():
        if isinstance(bound, float):
            return f"not a number {_BOUNDS[word]} {bound:g}"
    names = [part for part in place if isinstance(part, str)]
    is_time = any(name.endswith("_ns") for name in names[-2:])  # Also of a map by devices.
    return "not a time in whole nanoseconds" if is_time else "not a whole number"


def _place(parts: list[int | str]) -> str:
    place = ""
    for part in parts:
        if isinstance(part, int):
            place += f"[{part}]"
        else:
            place += f"{'.' * bool(place)}{part if part.isidentifier() else shown(part)}"
    return place
