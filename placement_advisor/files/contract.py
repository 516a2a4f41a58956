"""Contracts: JSON that is a frozen dataclass, written and read back by Pydantic.

The fields of a contract are the keys of an object, in their order; one that is a keyword of Python
ends in ``_``. A field with a default may be absent from the JSON; all others are there, null where
they are None. Units are in names, bounds in types, and what a field means is in the docstring below
it. The first type of a contract has `STRICT` as its ``__pydantic_config__``, which all types within
it follow.

Whatever a file holds, reading it ends in a value of its type, or in one `MisfitError` that says at
which place the first thing is wrong, and what would be right: a type's annotation says it (`What`).
Left out: keys that a type does not have, as a newer version may have written them; in files that
people edit (`CLOSED`) they are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from itertools import repeat
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import (
    AfterValidator,
    ConfigDict,
    FailFast,
    GetCoreSchemaHandler,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from placement_advisor.files import untrusted

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class What:
    """Says in the annotation of a type what a value has to be, for the error that it is not.

    Of a type that holds others it says so whatever is wrong within. A union of two types needs it:
    which of them was meant nobody knows.
    """

    words: str

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the type with these words for all of its errors."""
        return core_schema.custom_error_schema(
            handler(kind), custom_error_type="what", custom_error_message=self.words
        )


Ns = Annotated[int, Ge(0), Le(untrusted.MAX_NS), What("a time in whole nanoseconds")]
Count = Annotated[int, Ge(0), Le(untrusted.MAX_INTEGER), What("a whole number")]
Version = Annotated[int, Ge(1)]
Positive = Annotated[int, Ge(1), Le(untrusted.MAX_INTEGER), What("a whole number above 0")]
Bytes = Annotated[int, Ge(0), Le(untrusted.MAX_BYTES), What("a number of bytes from 0 to 10^15")]
NotNegative = Annotated[float, Ge(0), What("a number of at least 0")]
Share = Annotated[float, Ge(0.0), Le(1.0), What("a number from 0 to 1")]
# A nanosecond against a second: no two placements of a step lie so far apart.
Ratio = Annotated[float, Gt(1e-9), Lt(1e9), What("a number from 10^-9 to 10^9")]
Text = Annotated[str, MaxLen(untrusted.MAX_TEXT_CHARS)]


def _printable(words: str) -> str:
    if not words or not words.isprintable():
        raise ValueError(f"{untrusted.shown(words)} is not a name of printable characters")
    return words


# What can name a file, and be told.
Name = Annotated[Text, AfterValidator(_printable)]
# May quote what a process printed, or name every layer.
Prose = Annotated[str, MaxLen(100_000)]


class _FirstAlone(FailFast):
    """Ends with the first wrong row: errors of a million would not fit into memory."""

    def __hash__(self) -> int:  # `Rows[Text] | None` asks for it.
        return hash(type(self))


# Not strict: what is no JSON has lists where JSON has them.
Rows = Annotated[tuple[T, ...], _FirstAlone(), Strict(False)]
Filled = Annotated[Rows[T], MinLen(1)]
ByName = Annotated[Mapping[Text, T], _FirstAlone()]

STRICT = ConfigDict(
    strict=True,
    extra="ignore",
    allow_inf_nan=False,
    alias_generator=lambda name: name.rstrip("_"),
    serialize_by_alias=True,
)
# Of files that people edit: a key that is passed over would be a mistake unseen.
CLOSED = ConfigDict(**{**STRICT, "extra": "forbid"})
# Each key too many is an error of a kilobyte. Lock files have a tenth of that.
_MAX_VALUES_CLOSED = 1_000_000

_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")  # Of an object, of a named tuple.
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


_MISSING = object()


def like(kind: type[T], /, *values: object, **others: Any) -> T:
    """Return a value of a contract with what others have by the same names, and with what is given.

    The first of them that has a name counts; what none has is None where one of them is None. A
    field that can have one value alone has it. What is within follows the contract: sequences
    become tuples, and other types its own.
    """
    return kind(
        **{
            name: _like(inner, others[name] if name in others else _found(name, inner, values))
            for name, inner in _hints(kind).items()  # type: ignore[arg-type]
        }
    )


def _found(name: str, kind: Any, values: Sequence[object]) -> Any:
    for value in values:
        if (found := getattr(value, name, _MISSING)) is not _MISSING:
            return found
    if get_origin(kind) is Literal:
        (only,) = get_args(kind)
        return only
    if None in values:
        return None
    raise AttributeError(name)


def _like(kind: Any, value: Any) -> Any:
    bare = _bare(kind)
    if value is None or (isinstance(bare, type) and isinstance(value, bare)):
        return value
    if is_dataclass(bare):
        return like(bare, value)  # type: ignore[arg-type]
    if get_origin(bare) is tuple and isinstance(value, Iterable):
        inner, *rest = get_args(bare)
        kinds = repeat(inner) if rest == [...] else (inner, *rest)
        return tuple(map(_like, kinds, value))
    return value.value if get_origin(bare) is Literal and isinstance(value, Enum) else value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


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
    return value_of(kind, untrusted.read_text_bytes(path))


def value_of(kind: type[T], data: bytes) -> T:
    """Return the value of a contract that a text holds.

    Raises:
        MisfitError: it holds none.
    """
    is_closed = kind.__pydantic_config__["extra"] == "forbid"  # type: ignore[attr-defined]
    untrusted.check_size(data, _MAX_VALUES_CLOSED if is_closed else untrusted.MAX_VALUES)
    try:
        found: T = _adapter(kind).validate_json(data)
    except ValidationError as error:
        raise _misfit(kind, error) from None
    return found


def value_in(kind: type[T], document: object) -> T:
    """Return the value of a contract that a document holds which was no JSON, as one of TOML.

    Raises:
        MisfitError: it holds none.
    """
    try:
        data = json.dumps(document, default=_no_json)
    except ValueError:  # Python refuses to write a number of thousands of digits.
        raise untrusted.MisfitError("a number with too many digits") from None
    return value_of(kind, data.encode())


def value_from(kind: type[T], value: object) -> T:
    """Return what a named tuple, a list of them or a plain value is in a parsed document.

    It takes less memory than to read the text of a large one, and more time.

    Raises:
        MisfitError: it is something else.
    """
    try:
        found: T = _adapter(kind, STRICT).validate_python(value)
    except ValidationError as error:
        raise _misfit(kind, error) from None
    return found


def _no_json(value: object) -> object:
    return {type(value).__name__: str(value)}  # No contract has such an object.


def _adapter(kind: Any, config: ConfigDict | None = None) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:  # One takes up to a tenth of a second to build.
        _ADAPTERS[kind] = TypeAdapter(kind, config=config)
    return _ADAPTERS[kind]


def _rank(error: Any) -> int:
    """Return what explains other errors first: a newer version, a key meant to be another one."""
    if error["loc"] == ("schema_version",):
        return 0
    return 1 if error["type"] in _UNKNOWN else 2


def _misfit(root: Any, found: ValidationError) -> untrusted.MisfitError:
    """Return in our words what explains best what Pydantic has found."""
    error: Any = min(found.errors(include_url=False), key=_rank)
    place, bounds, given = list(error["loc"]), error.get("ctx", {}), untrusted.shown(error["input"])
    if "[key]" in place:
        del place[place.index("[key]") - 1 :]
    match error["type"], place:
        case "missing", [*place, str(key)]:
            problem = f"no field {key!r}"
        case kind, [*outer, str(key)] if kind in _UNKNOWN:
            known = list(_members(_type_at(root, outer)))
            near = get_close_matches(key, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            problem = f"unknown key; {meant}"
        case "missing" | "too_long" | "named_tuple_type" as kind, _:  # Of a row.
            place = place[:-1] if kind == "missing" else place
            names = ", ".join(_members(_type_at(root, place)))
            problem = f"{given} is {f'not [{names}]' if names else _WHAT[kind]}"
        case "less_than_equal", ["schema_version"]:
            reads = f"newer than the {bounds['le']} that this advisor reads"
            problem = f"{given} is {reads}; update it"
        case "greater_than_equal", ["schema_version"] if error["input"] > 0:
            reads = f"older than the {bounds['ge']} that this advisor reads"
            problem = f"{given} is {reads}; have the file written anew"
        case _, ["schema_version"]:
            problem = f"{given} is not a version"
        case "value_error", _:  # What a type says of its values together.
            problem = str(bounds["error"])
        case "json_invalid", _:
            problem = f"not valid JSON: {bounds['error']}"
        case "string_too_long", _:
            problem = f"{given} has more than {bounds['max_length']:,} characters"
        case "what", _:
            problem = f"{given} is not {error['msg']}"
        case kind, _:
            expected = bounds.get("expected", "").replace("'", "")
            what = f"not {expected}" if expected else _WHAT.get(kind, f"wrong: {error['msg']}")
            problem = f"{given} is {what}"
    return untrusted.MisfitError(problem, _place(place))


def _type_at(kind: Any, place: list[int | str]) -> Any:
    """Return the type of what stands at a place of a contract."""
    for part in place:
        members = _members(kind)
        if members and isinstance(part, str):
            kind = members[part]
        else:  # A tuple of any length and a map have one type for all.
            arguments = get_args(_bare(kind))
            inner = list(members.values()) or [t for t in arguments if t is not Ellipsis]
            kind = inner[part if isinstance(part, int) and part < len(inner) else -1]
    return kind


def _bare(kind: Any) -> Any:
    """Return a type without its annotations; of one that may be null, the other one."""
    while get_origin(kind) in (Annotated, Union, UnionType):
        kind = get_args(kind)[0]
    return kind


def _members(kind: Any) -> dict[str, Any]:
    """Return the types of an object's keys, or of the values of a named row."""
    bare = _bare(kind)
    names = [f.name for f in fields(bare)] if is_dataclass(bare) else getattr(bare, "_fields", ())
    types = get_type_hints(bare, include_extras=True) if names else {}
    return {_key(name, types[name]): types[name] for name in names}


def _key(name: str, kind: Any) -> str:
    annotations = getattr(kind, "__metadata__", ())
    aliases = [each.alias for each in annotations if isinstance(each, FieldInfo)]
    return next(filter(None, aliases), name.rstrip("_"))


_WHAT = {
    "dataclass_type": "not an object",
    "dict_type": "not an object",
    "tuple_type": "not a list",
    "list_type": "not a list",
    "string_type": "not a string",
    "frozen_set_type": "not a list",
    "bool_type": "neither true nor false",
    "int_type": "not a whole number",
    "int_from_float": "not a whole number",
    "float_type": "not a number",
    "missing": "too short",
    "too_short": "too short",
    "too_long": "too long",
    "finite_number": "not a number",
}


def _place(parts: list[int | str]) -> str:
    place = ""
    for part in parts:
        if isinstance(part, int):
            place += f"[{part}]"
        else:
            place += f"{'.' * bool(place)}{part if part.isidentifier() else untrusted.shown(part)}"
    return place
