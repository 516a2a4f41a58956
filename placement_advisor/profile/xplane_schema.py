"""The messages of TensorFlow's xplane.proto, declared for the protobuf runtime alone.

They live under a package name and in a descriptor pool of our own, so that TensorFlow is neither
imported nor disturbed by them. Fields that a file has and this schema lacks are kept by protobuf
but not read.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


StatValue = int | float | str | bytes

# The plane that says when profiling began and ended, and the names of these stats.
TASK_PLANE = "Task Environment"
PROFILE_START, PROFILE_STOP = "profile_start_time", "profile_stop_time"

# In a column of numbers, that of an event which has none.
NO_KEY = -1

_PACKAGE = "placement_advisor.xplane"
# Numbers of types and labels in descriptor.proto.
_SCALARS = {"double": 1, "int64": 3, "uint64": 4, "string": 9, "bytes": 12}
_MESSAGE_TYPE = 11
_OPTIONAL, _REPEATED = 1, 3

# (field, number, type): ``*`` repeated, ``|`` member of the message's one oneof, ``{}`` a map from
# int64. Source: xplane.proto of TensorFlow 2.21.
_SCHEMA: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    "XSpace": (
        ("planes", 1, "XPlane*"),
        ("errors", 2, "string*"),
        ("warnings", 3, "string*"),
        ("hostnames", 4, "string*"),
    ),
    "XPlane": (
        ("id", 1, "int64"),
        ("name", 2, "string"),
        ("lines", 3, "XLine*"),
        ("event_metadata", 4, "XEventMetadata{}"),
        ("stat_metadata", 5, "XStatMetadata{}"),
        ("stats", 6, "XStat*"),
    ),
    "XLine": (
        ("id", 1, "int64"),
        ("display_id", 10, "int64"),
        ("name", 2, "string"),
        ("display_name", 11, "string"),
        ("timestamp_ns", 3, "int64"),
        ("duration_ps", 9, "int64"),
        ("events", 4, "XEvent*"),
    ),
    "XEvent": (
        ("metadata_id", 1, "int64"),
        ("offset_ps", 2, "int64|"),
        ("num_occurrences", 5, "int64|"),
        ("duration_ps", 3, "int64"),
        ("stats", 4, "XStat*"),
    ),
    "XStat": (
        ("metadata_id", 1, "int64"),
        ("double_value", 2, "double|"),
        ("uint64_value", 3, "uint64|"),
        ("int64_value", 4, "int64|"),
        ("str_value", 5, "string|"),
        ("bytes_value", 6, "bytes|"),
        ("ref_value", 7, "uint64|"),
    ),
    "XEventMetadata": (
        ("id", 1, "int64"),
        ("name", 2, "string"),
        ("display_name", 4, "string"),
        ("metadata", 3, "bytes"),
        ("stats", 5, "XStat*"),
        ("child_id", 6, "int64*"),
    ),
    "XStatMetadata": (
        ("id", 1, "int64"),
        ("name", 2, "string"),
        ("description", 3, "string"),
    ),
}


def profile_start_ns(planes: Iterable[Any]) -> int:
    """Return when profiling began, by planes; 0 if times count from no such moment."""
    for plane in planes:
        start_ns = plane.stats.get(PROFILE_START)
        if plane.name == TASK_PLANE and isinstance(start_ns, int):
            return start_ns
    return 0


def new_space() -> Any:
    """Return an empty XSpace message."""
    return _new("XSpace")


def new_plane() -> Any:
    """Return an empty XPlane message."""
    return _new("XPlane")


def _new(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="placement_advisor/xplane.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        if any(spec.endswith("|") for _, _, spec in fields):
            message.oneof_decl.add(name="value")
        for field_name, number, spec in fields:
            _add_field(message, field_name, number, spec)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add_field(message: Any, name: str, number: int, spec: str) -> None:
    added = message.field.add(name=name, number=number, label=_OPTIONAL)
    kind = spec.rstrip("*|{}")
    if spec.endswith("{}"):
        entry_name = "".join(word.capitalize() for word in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "int64")
        _add_field(entry, "value", 2, kind)
        kind = f"{message.name}.{entry_name}"
    if spec.endswith(("*", "{}")):
        added.label = _REPEATED
    if spec.endswith("|"):
        added.oneof_index = 0
    if kind in _SCALARS:
        added.type = _SCALARS[kind]
    else:
        added.type = _MESSAGE_TYPE
        added.type_name = f".{_PACKAGE}.{kind}"
