"""Carries bytes between a connection on this host and one to another host, both ways.

One thread does it. Nothing is kept but the chunk at hand: whoever sends faster than the other end
takes must wait, as without us. An end of one direction is passed on, and the other goes on. A
connection that breaks breaks the other one.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import TYPE_CHECKING

from placement_advisor.remote_hosts.tls_stream import CHUNK_BYTES

if TYPE_CHECKING:
    from placement_advisor.remote_hosts.tls_stream import TlsStream

# On, and no time to linger: a reset instead of an end.
_AT_ONCE = struct.pack("ii", 1, 0)


def carry(near: socket.socket, far: TlsStream) -> None:
    """Carry bytes until both ends have said that they send no more, or one breaks.

    The caller closes both.
    """
    near.setblocking(False)
    if near.family == socket.AF_INET:
        # Else what follows a small message waits for its acknowledgement, for 40 ms.
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    far.go_on()
    try:
        _Carried(near, far).run()
    except OSError:
        break_when_closed(near)
        break_when_closed(far.socket)


def break_when_closed(connection: socket.socket) -> None:
    """Let a connection break when it is closed: its other end must not take that for an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


class _Carried:
    """Two connections that are joined."""

    def __init__(self, near: socket.socket, far: TlsStream) -> None:
        self._near, self._far = near, far
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._inwards = memoryview(b"")
        # Nothing more comes from there; `TlsStream` passes on the one, we the other.
        self._near_ended = self._far_ended = self._far_ended_told = False

    def run(self) -> None:
        """Carry to the end of both directions.

        Raises:
            OSError: one connection broke.
        """
        # What came with the handshake is in the stream already.
        self._take_in()
        while not (self._near_ended and self._far_ended_told) or self._far.unsent:
            near_ready, far_ready = self._wait()
            if far_ready:
                self._far.send()
                if not self._inwards and not self._far_ended:
                    self._far.receive()
                    self._take_in()
            if near_ready:
                if self._inwards:
                    self._give_in()
                if not self._near_ended and not self._far.unsent:
                    self._take_out()

    def _wait(self) -> tuple[bool, bool]:
        poll = select.poll()
        near = far = 0
        if self._inwards:
            near |= select.POLLOUT
        elif not self._far_ended:
            far |= select.POLLIN
        if self._far.unsent:
            far |= select.POLLOUT
        elif not self._near_ended:
            near |= select.POLLIN
        # One from which nothing is wanted would wake us again and again once it has ended.
        if near:
            poll.register(self._near, near)
        if far:
            poll.register(self._far.socket, far)
        ready = {descriptor for descriptor, _ in poll.poll()}
        return self._near.fileno() in ready, self._far.socket.fileno() in ready

    def _take_out(self) -> None:
        try:
            size = self._near.recv_into(self._buffer)
        except BlockingIOError:
            return
        if size:
            self._far.put(self._buffer[:size])
        else:
            self._near_ended = True
            self._far.put_end()
        self._far.send()

    def _take_in(self) -> None:
        self._inwards, self._far_ended = self._far.get()
        self._give_in()

    def _give_in(self) -> None:
        if self._inwards:
            try:
                self._inwards = self._inwards[self._near.send(self._inwards) :]
            except BlockingIOError:
                return
        if self._far_ended and not self._inwards and not self._far_ended_told:
            self._near.shutdown(socket.SHUT_WR)
            self._far_ended_told = True
