"""Pairs of byte streams that both sides of a conversation read and write.

Reading ends by itself where nothing comes for a while. That time is counted by the kernel and asked
of it once more when it is over, so that a process that was stopped meanwhile first reads what has
come. Reading and writing may go on in two threads; a third one ends both.
"""

from __future__ import annotations

import os
import select
from typing import Protocol

_CHUNK_BYTES = 65_536
_MS_PER_S = 1_000


class ByteStream(Protocol):
    """Bytes from the other side, and to it."""

    def read(self, limit_s: float | None) -> bytes:
        """Return what has come, some bytes at least; none at the end, or once this is stopped.

        Raises:
            TimeoutError: nothing came for so long.
            OSError: it cannot be read.
        """

    def write(self, data: bytes) -> None:
        """Send all of it, however long that takes.

        Raises:
            OSError: nobody reads it any more, or this is stopped.
        """

    def stop(self) -> None:
        """Let reading and writing end, in whichever threads they go on."""

    def close(self) -> None:
        """Let go of it, once nobody reads or writes."""


class PipeStream:
    """A pipe, or whatever has a descriptor, for each direction."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Take over two descriptors."""
        self._incoming, self._outgoing = incoming, outgoing
        self._stopped = os.eventfd(0)
        self._reading, self._writing = select.poll(), select.poll()
        for poll in (self._reading, self._writing):
            poll.register(self._stopped, select.POLLIN)
        self._reading.register(incoming, select.POLLIN)
        self._writing.register(outgoing, select.POLLOUT)

    def read(self, limit_s: float | None) -> bytes:
        """Return what has come; see `ByteStream.read`."""
        ready = dict(self._reading.poll(None if limit_s is None else limit_s * _MS_PER_S))
        if not ready:
            raise TimeoutError
        return b"" if self._stopped in ready else os.read(self._incoming, _CHUNK_BYTES)

    def write(self, data: bytes) -> None:
        """Send all of it; see `ByteStream.write`."""
        left = memoryview(data)
        while left:
            if self._stopped in dict(self._writing.poll()):
                raise BrokenPipeError("stopped")
            # So much a pipe that can be written to takes at once; more could wait for its reader.
            # Not made non-blocking: other processes may write to the same pipe.
            left = left[os.write(self._outgoing, left[: select.PIPE_BUF]) :]

    def stop(self) -> None:
        """Let reading and writing end."""
        os.eventfd_write(self._stopped, 1)

    def close(self) -> None:
        """Close both pipes."""
        for descriptor in {self._incoming, self._outgoing, self._stopped}:
            os.close(descriptor)


def take_standard_streams() -> PipeStream:
    """Take standard input and output for a conversation, and from all else in this process.

    What is printed from now on goes to standard error; processes that are started inherit neither.
    """
    taken = PipeStream(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken
