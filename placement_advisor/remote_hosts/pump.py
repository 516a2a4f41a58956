"""Carries bytes between a connection on this host and one to another host, both ways.

There is a thread for each way. Nothing is kept but the chunk at hand: whoever sends faster than the
other end takes must wait, as without us. An end of one direction is passed on, and the other goes
on. A connection that breaks breaks the other one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

from placement_advisor.remote_hosts.tls_stream import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.remote_hosts.tls_stream import TlsStream

# On, and no time to linger: a reset instead of an end.
_AT_ONCE = struct.pack("ii", 1, 0)


def carry(near: socket.socket, far: TlsStream) -> None:
    """Carry bytes until both ends have said that they send no more, or one breaks.

    The caller closes both.
    """
    near.settimeout(None)
    far.go_on()
    _Carried(near, far).run()


def break_when_closed(connection: socket.socket) -> None:
    """Let a connection break when it is closed: its other end must not take that for an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


class _Carried:
    """Two connections that are joined."""

    def __init__(self, near: socket.socket, far: TlsStream) -> None:
        self._near, self._far = near, far
        self._broken = self._gives = False

    def run(self) -> None:
        """Carry to the end of both directions."""
        outwards = threading.Thread(target=self._move, args=(self._outwards,), daemon=True)
        outwards.start()
        self._move(self._inwards)
        outwards.join()

    def _move(self, carry: Callable[[], None]) -> None:
        try:
            carry()
        except OSError:
            self._break()

    def _outwards(self) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        while size := self._near.recv_into(buffer):
            self._far.send(buffer[:size])
        self._far.send_end()

    def _inwards(self) -> None:
        while data := self._far.receive():
            self._gives = True
            if self._broken:
                return
            self._near.sendall(data)
            self._gives = False
        self._near.shutdown(socket.SHUT_WR)

    def _break(self) -> None:
        """Let both connections break, and whoever waits for one of them in the other thread."""
        self._broken = True
        for each in (self._near, self._far.socket):
            break_when_closed(each)
        # To shut a connection down for writing says that it ends: only where somebody waits to
        # write, whose reader then does not get to that before it breaks.
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR if self._gives else socket.SHUT_RD)
        with contextlib.suppress(OSError):
            self._far.socket.shutdown(socket.SHUT_RDWR)
