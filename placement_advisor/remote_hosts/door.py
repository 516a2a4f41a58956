"""The door of a private network: sockets that belong to it, for the relay outside.

A socket belongs to the network in which it was made, whoever holds it, and a process of a user
namespace cannot leave its network for the host's. So a process in the network makes sockets and
passes them to the relay, which stays outside: one that listens for each worker of another host, and
one that is not connected whenever the relay asks, and many of these in advance: TensorFlow keeps
Python from running while a process of a mirrored step waits for the others, which wait for such a
socket. The process goes on with its other work; it may be a worker, or the client. When it ends,
the relay lets go of the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Where a relay waits for doors, within its folder.
DOORS = "doors"
# The relay answers at once, unless the machine is out of memory.
_LIMIT_S = 10.0
# A route takes 40 bytes.
_LONGEST_MESSAGE_BYTES = 100_000
_WAITING_CONNECTIONS = 64
# Sockets that are passed before they are asked for. Judgement: each other worker connects a few
# times while all of them start.
_AHEAD = 64
_LOOPBACK = "127.0.0.1"
# The end of a message would wait for 40 ms else, until the receiver has confirmed what came before.
_AT_ONCE = socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
_SOCKET, _NO_SOCKET, _OPEN, _WANTED = b"s", b"n", b"o", b"w"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Which ports of 127.0.0.1 lead where in one private network that several hosts share.

    ``network`` is its number, the same on all of them and drawn anew for each, so that what is left
    of one never meets another. On ``near`` ports workers of this host listen. Every ``far`` port is
    that of a worker elsewhere, with address and port of the relay there.
    """

    network: int
    near: tuple[int, ...]
    far: tuple[tuple[int, str, int], ...]


def open_network(
    folder: str, network: int, near: tuple[int, ...], far: tuple[tuple[int, str, int], ...]
) -> None:
    """Open the network in which this process is to the relay of this host; see `Routes`.

    ``folder`` is the relay's. Runs in a child.

    Raises:
        TestbedError: the relay is gone, or a port is taken in this network.
    """
    relay = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        relay.settimeout(_LIMIT_S)
        with socket_path(folder, DOORS) as path:
            relay.connect(path)
        relay.send(json.dumps([network, near, far]).encode())
        for port, _, _ in far:
            with socket.socket() as listening:
                # Connections of a network's earlier use may still be timing out.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.setsockopt(*_AT_ONCE)  # Connections inherit it.
                listening.bind((_LOOPBACK, port))
                listening.listen(_WAITING_CONNECTIONS)
                socket.send_fds(relay, [_SOCKET], [listening.fileno()])
        if relay.recv(1) != _OPEN:
            raise ConnectionResetError("it has ended the connection")
        for _ in range(_AHEAD):
            with socket.socket() as made:
                socket.send_fds(relay, [_SOCKET], [made.fileno()])
        relay.settimeout(None)
    except OSError as error:
        relay.close()
        raise TestbedError(f"the relay to other hosts does not work: {error}") from None
    threading.Thread(target=_make_sockets, args=(relay,), name="door", daemon=True).start()


def _make_sockets(relay: socket.socket) -> None:
    """Give the relay a socket of this network whenever it asks, until it ends."""
    with relay:
        while True:
            try:
                if relay.recv(1) != _WANTED:
                    return
                try:
                    with socket.socket() as made:
                        socket.send_fds(relay, [_SOCKET], [made.fileno()])
                except OSError:  # Too many files are open here.
                    relay.send(_NO_SOCKET)
            except OSError:
                return


class Door:
    """A door as the relay sees it: one connection, which lasts as long as the network."""

    def __init__(self, connection: socket.socket) -> None:
        """Take what a door says and passes when it opens.

        Raises:
            OSError: it is gone, or takes too long.
            ValueError: it is no door.
        """
        self._connection = connection
        self._one_asks = threading.Lock()
        connection.settimeout(_LIMIT_S)
        network, near, far = json.loads(connection.recv(_LONGEST_MESSAGE_BYTES))
        self.routes = Routes(
            network=network, near=tuple(near), far=tuple((a, b, c) for a, b, c in far)
        )
        self.listening = tuple(self._passed() for _ in self.routes.far)

    def tell_open(self) -> None:
        """Say that the relay is ready."""
        self._connection.send(_OPEN)

    def connect(self, port: int) -> socket.socket:
        """Return a connection to a port of the network.

        Raises:
            OSError: nobody listens there, or the network is gone.
        """
        with self._one_asks:
            self._connection.send(_WANTED)  # In place of the one that is taken now.
            made = self._passed()
        try:
            made.setsockopt(*_AT_ONCE)
            made.settimeout(_LIMIT_S)
            made.connect((_LOOPBACK, port))
        except OSError:
            made.close()
            raise
        return made

    def wait_for_end(self) -> None:
        """Return when the process in the network has ended."""
        poll = select.poll()
        poll.register(self._connection, select.POLLRDHUP)
        poll.poll()

    def close(self) -> None:
        """Let go of the network; nobody can connect to a far port any more."""
        for each in self.listening:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # Whoever waits for connections closes it.
        with self._one_asks:
            self._connection.close()

    def _passed(self) -> socket.socket:
        message, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        if message != _SOCKET or len(descriptors) != 1:
            raise ConnectionResetError("the network is gone")
        return socket.socket(fileno=descriptors[0])


@contextlib.contextmanager
def socket_path(folder: str | Path, name: str) -> Iterator[str]:
    """Give a short path of a Unix socket: such a path has 107 bytes at most, folders have more."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
