"""A profile that can be given to others: nothing that says whose machine it was taken on.

What this program does not read is dropped: fields that the schema lacks, raw bytes, names of hosts,
what went wrong. All other texts are handed to a function that takes names out. Times stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from placement_advisor.profile.xspace.xplane_schema import new_space

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_OF_THE_HOST = ("errors", "warnings", "hostnames")


def scrubbed(path: Path, without_names: Callable[[str], str]) -> bytes:
    """Return an XSpace file whose texts the function has gone through."""
    space = new_space()
    space.ParseFromString(path.read_bytes())
    space.DiscardUnknownFields()
    for name in _OF_THE_HOST:
        space.ClearField(name)
    _scrub(space, without_names)
    content: bytes = space.SerializeToString(deterministic=True)
    return content


def _scrub(message: Any, without_names: Callable[[str], str]) -> None:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_BYTES:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, without_names(value))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            is_map = field.message_type.GetOptions().map_entry
            for each in value.values() if is_map else value:
                _scrub(each, without_names)
