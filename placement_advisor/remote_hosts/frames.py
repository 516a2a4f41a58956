"""Frames: messages on a pair of byte streams, each behind its length; an empty one says "I live".

Each side begins with a mark of its own. Whatever a login shell or a launcher puts before that
(banners, warnings) is skipped, up to a limit, and kept to be shown where nothing else comes. The
marks differ, so that a terminal that echoes what it is sent is not taken for the other side. What
stands between frames is not told from frames: then a length is nonsense, most likely, and the
conversation ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from placement_advisor.files.foreign_json import MisfitError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Zero bytes stand in no text.
COMMAND_MARK = b"\0placement-advisor command\0"
WORKER_MARK = b"\0placement-advisor worker\0"
# The graph of 210,000 ops has a tenth of that. Text says at least 538 MB as a length.
LONGEST_FRAME_BYTES = 500_000_000
# Judgement: the longest message of the day is a page or two.
MOST_SKIPPED_BYTES = 64_000
HEARTBEAT = b"\0\0\0\0"

_LENGTH = struct.Struct(">I")


def framed(message: bytes) -> bytes:
    """Return a message behind its length.

    Raises:
        MisfitError: it is too long.
    """
    _check_length(len(message))
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Takes bytes as they come and gives the messages in them."""

    def __init__(self, mark: bytes) -> None:
        """Skip what comes before a mark."""
        self._mark = mark
        self._buffer = bytearray()
        self.is_open = False

    @property
    def skipped(self) -> str:
        """What came instead of the mark so far, or before it."""
        return (self._skipped if self.is_open else bytes(self._buffer)).decode(errors="replace")

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Give the messages that are complete with this chunk; heartbeats are none.

        Raises:
            MisfitError: no mark comes, or a length is nonsense.
        """
        self._buffer += chunk
        if not self.is_open and not self._has_opened():
            return
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            _check_length(length)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            message = bytes(memoryview(self._buffer)[_LENGTH.size : end])
            del self._buffer[:end]
            if message:
                yield message

    def _has_opened(self) -> bool:
        before, mark, behind = self._buffer.partition(self._mark)
        if len(before) > MOST_SKIPPED_BYTES:
            raise MisfitError(f"{MOST_SKIPPED_BYTES:,} bytes came, and none of them ours")
        if not mark:
            return False
        self.is_open, self._skipped, self._buffer = True, bytes(before), behind
        return True


def _check_length(length: int) -> None:
    if length > LONGEST_FRAME_BYTES:
        raise MisfitError(
            f"a message of {length:,} bytes; at most {LONGEST_FRAME_BYTES:,} can be sent"
        )
