"""Values that go to another host and back, as JSON: those of functions that are called there.

What JSON has stands for itself. Everything else is an object with one member, which names what it
is: ``{"tuple": [1, 2]}``, ``{"data": ["CallFailure", {…}]}``. Reading builds values of built-in
types and of the classes listed here, with exactly the fields that they have, and nothing else; what
the fields hold is not looked at. Classes are known by their names: both hosts have one version of
this program. Left out: objects that hold themselves, and that two places hold the same object.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor import errors
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.files.contract import value_from
from placement_advisor.files.foreign_json import MisfitError, shown, within
from placement_advisor.machine import nvidia
from placement_advisor.machine.slots import Slot
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.profile.worker_steps import PlannedCopy
from placement_advisor.remote_hosts.host_facts import HostFacts
from placement_advisor.remote_hosts.probe import NetworkPlace, WayTried
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable

_ENUMS = (FailureCause, nvidia.Connection)
# Dataclasses and named tuples.
_RECORDS = (
    CallFailure,
    CollectiveTimes,
    PlannedCopy,
    HostFacts,
    ModelSource,
    NetworkPlace,
    Prepared,
    Slot,
    WayTried,
    nvidia.Gpu,
    nvidia.GpuPair,
    nvidia.Gpus,
)
_ERRORS = (
    errors.AdvisorError,
    errors.BatchSplitError,
    errors.ModelError,
    errors.PlacementError,
    errors.TestbedError,
)
_ENUM_OF: dict[str, type[Enum]] = {kind.__name__: kind for kind in _ENUMS}
_RECORD_OF: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in _RECORDS}
_ERROR_OF = {kind.__name__: kind for kind in _ERRORS}
# Strings may hold half characters (file names do), which only this writes and reads again.
_HALVES = "surrogatepass"


def encode(value: object) -> bytes:
    """Return a value as JSON.

    Raises:
        TypeError: it holds something that cannot be sent.
    """
    text = json.dumps(_sent(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", _HALVES)


def decode(data: bytes) -> object:
    """Return the value that `encode` made JSON of.

    Raises:
        MisfitError: the JSON is not what `encode` writes.
    """
    try:
        return _value(json.loads(data.decode("utf-8", _HALVES), parse_constant=_no_number))
    except RecursionError:
        raise MisfitError("nested too deeply") from None
    except ValueError as error:
        raise MisfitError(f"not valid JSON: {error}") from None


def _sent(value: object) -> object:
    """Return a value as what JSON has."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}  # type: ignore[arg-type]
    if kind is list:
        return [_sent(each) for each in value]  # type: ignore[attr-defined]
    return _tagged(value)


def _tagged(value: object) -> dict[str, object]:
    kind = type(value)
    if kind in _RECORDS:
        return {"data": [kind.__name__, {n: _sent(getattr(value, n)) for n in _field_names(kind)}]}
    if isinstance(value, Enum) and kind in _ENUMS:
        return {"enum": [kind.__name__, value.name]}
    if isinstance(value, errors.AdvisorError) and kind in _ERRORS:
        return {"error": [kind.__name__, value.message, value.hint]}
    if isinstance(value, Mapping):
        return {"dict": [[_sent(key), _sent(member)] for key, member in value.items()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}  # type: ignore[arg-type]
    if kind in (tuple, frozenset):
        return {kind.__name__: [_sent(each) for each in value]}  # type: ignore[attr-defined]
    raise TypeError(f"{shown(value)} is a {kind.__qualname__}, which cannot be sent to other hosts")


def _value(sent: object) -> object:
    """Return the value that `_sent` made this of."""
    if isinstance(sent, list):
        return [within(f"[{i}]", _value, each) for i, each in enumerate(sent)]
    if not isinstance(sent, dict):
        return sent
    match list(sent.items()):
        case [(str(tag), content)] if tag in _READERS:
            return within(tag, _READERS[tag], content)
    raise MisfitError(f"{shown(sent)} is no value that is sent")


def _values(sent: object) -> list[object]:
    value = _value(value_from(list[Any], sent))
    assert isinstance(value, list)
    return value


def _dict(sent: object) -> dict[object, object]:
    return dict(map(_pair, value_from(list[Any], sent)))


def _pair(sent: object) -> tuple[Hashable, object]:
    match sent:
        case [key, member]:
            return _hashable(_value(key)), _value(member)
    raise MisfitError(f"{shown(sent)} is not a pair")


def _hashable(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise MisfitError(f"{shown(value)} cannot be a key") from None
    return value


def _float(sent: object) -> float:
    if sent not in ("nan", "inf", "-inf"):
        raise MisfitError(f"{shown(sent)} is no number")
    return float(sent)


def _bytes(sent: object) -> bytes:
    try:
        return base64.b64decode(_text(sent), validate=True)
    except (binascii.Error, ValueError):
        raise MisfitError(f"{shown(sent)} is not base64") from None


def _enum(sent: object) -> Enum:
    match sent:
        case [str(kind), str(name)] if kind in _ENUM_OF and name in _ENUM_OF[kind].__members__:
            return _ENUM_OF[kind][name]
    raise MisfitError(f"{shown(sent)} is no member of an enum that is sent")


def _record(sent: object) -> object:
    match sent:
        case [str(kind), held] if kind in _RECORD_OF:
            names = _field_names(_RECORD_OF[kind])
            members = within(kind, partial(value_from, dict[str, Any]), held)
            if set(members) != set(names):
                has = f"has the fields {shown(', '.join(members))}"
                raise MisfitError(f"{has}, where there are {', '.join(names)}", kind)
            return _RECORD_OF[kind](**{name: _value(members[name]) for name in names})
    raise MisfitError(f"{shown(sent)} is no record that is sent")


def _error(sent: object) -> errors.AdvisorError:
    match sent:
        case [str(kind), str(message), None | str() as hint] if kind in _ERROR_OF:
            return _ERROR_OF[kind](message, hint=hint)
    raise MisfitError(f"{shown(sent)} is no error that is sent")


def _field_names(kind: Any) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    names: tuple[str, ...] = kind._fields
    return names


def _text(sent: object) -> str:
    if not isinstance(sent, str):
        raise MisfitError(f"{shown(sent)} is not a string")
    return sent


def _no_number(name: str) -> object:
    raise MisfitError(f"{name} is not a JSON number")


_READERS: dict[str, Callable[[object], object]] = {
    "bytes": _bytes,
    "data": _record,
    "dict": _dict,
    "enum": _enum,
    "error": _error,
    "float": _float,
    "frozenset": lambda sent: frozenset(map(_hashable, _values(sent))),
    "tuple": lambda sent: tuple(_values(sent)),
}
