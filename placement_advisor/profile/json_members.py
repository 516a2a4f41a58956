"""The members of a JSON list, one after another: none but the one that is looked at is in memory.

Parsed as a whole, a trace takes ten times its size and more. Here numba finds where values end, and
`json` parses one at a time. Text between members is not checked.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from placement_advisor.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

# A member of a trace is some hundred bytes long; arguments may hold a stack or a shape.
_LONGEST_MEMBER = 1_000_000
_CORRUPT = -1
_QUOTE, _BACKSLASH, _COMMA, _COLON, _LAST_SPACE = 0x22, 0x5C, 0x2C, 0x3A, 0x20
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 0x5B, 0x5D, 0x7B, 0x7D
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@compiled()
def _next_value(data: Bytes, at: int) -> tuple[int, int]:
    """Return beginning and end of the first value from a place on.

    The two are equal at the end of a list or object, and `_CORRUPT` where a value does not end.
    """
    end = len(data)
    while at < end and (data[at] <= _LAST_SPACE or data[at] in (_COMMA, _COLON)):
        at += 1
    start, depth = at, 0
    while at < end:
        byte = data[at]
        at += 1
        if byte == _QUOTE:
            while at < end and data[at] != _QUOTE:
                at += 2 if data[at] == _BACKSLASH else 1
            at += 1
            if at > end:
                break
        elif byte in (_OPEN_LIST, _OPEN_OBJECT):
            depth += 1
        elif byte in (_CLOSE_LIST, _CLOSE_OBJECT):
            if depth == 0:
                return start, at - 1
            depth -= 1
        elif depth == 0 and (byte <= _LAST_SPACE or byte in (_COMMA, _COLON)):
            return start, at - 1
        elif depth == 0:
            continue
        if depth == 0:
            return start, at
    return _CORRUPT, _CORRUPT


def list_start(data: Bytes, key: str) -> int | None:
    """Return where a document's list begins: all of it, or what it has under a key.

    None if there is no list. Raises `ValueError` if the document does not end.
    """
    start, _ = _value(data, 3 if data[:3].tobytes() == _BYTE_ORDER_MARK else 0)
    if data[start] == _OPEN_LIST:
        return start
    if data[start] != _OPEN_OBJECT:
        return None
    wanted, at = json.dumps(key).encode(), start + 1
    while True:
        name, at = _value(data, at)
        if name == at:
            return None
        is_wanted = data[name:at].tobytes() == wanted
        start, at = _value(data, at)
        if is_wanted:
            return start if data[start] == _OPEN_LIST else None


def members(data: Bytes, start: int, containing: bytes = b"") -> Iterator[Any]:
    """Yield the members of the list that begins at a place, if their text contains some bytes.

    Raises `ValueError` where one is no JSON, or longer than any event is.
    """
    at = start + 1
    while True:
        first, at = _value(data, at)
        if first == at:
            return
        if at - first > _LONGEST_MEMBER:
            raise ValueError(f"the event at byte {first} has {at - first:,} bytes")
        text = data[first:at].tobytes()
        if containing in text:
            yield json.loads(text)


def _value(data: Bytes, at: int) -> tuple[int, int]:
    start, end = _next_value(data, at)
    if start == _CORRUPT:
        raise ValueError("it ends within a value")
    return start, end
