"""The relay of a host: what TensorFlow sends to other hosts leaves and arrives here, under TLS.

TensorFlow's servers stay in a private network without a way out. Whoever connects there to a port
of a worker elsewhere is connected to the relay of that host, and by that to the worker. From
outside one port is visible, which serves holders of the secret alone, and of the ports within those
that a door has named (`door.py`). Runs in a child: its threads go on between calls.

Left out: whoever floods the port can keep peers from connecting. Connections that run go on.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.remote_hosts.door import DOORS, Door, socket_path
from placement_advisor.remote_hosts.greeting import Greeter, Greeting, Purpose, answer
from placement_advisor.remote_hosts.pump import break_when_closed, carry

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.remote_hosts.tls_stream import TlsStream

# Where control is served, within a relay's folder, by a Unix socket of whoever serves it.
CONTROL = "control"
EVERYWHERE = ("0.0.0.0", "::")
LOCALHOST = "localhost"
# Strangers can have so many connections for as long as a greeting may take.
_GREETED_AT_ONCE = 64
_WAITING_CONNECTIONS = 64
# Where no more files can be opened, until some are closed.
_PAUSE_S = 0.1

_relay: Relay | None = None


def start(folder: str, secret: bytes, address: str | None, port: int = 0) -> int | None:
    """Become the relay of this host; return the port at which other hosts reach it.

    It has one private folder, in which doors open. Without an ``address`` it only leads outwards,
    and listens nowhere. Port 0 is any that is free.

    Raises:
        AdvisorError: this host has no such address, or the port is taken.
    """
    global _relay
    _relay = Relay(Path(folder), secret)
    return None if address is None else _relay.listen(address, port)


class Relay:
    """Joins connections of private networks with those of other hosts."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        """Wait for doors in a folder."""
        self._folder = folder
        self._greeter = Greeter(secret)
        self._greeted = threading.BoundedSemaphore(_GREETED_AT_ONCE)
        self._changes = threading.Lock()
        self._doors: dict[int, Door] = {}
        self._carried: dict[int, set[tuple[socket.socket, TlsStream]]] = {}
        doors = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket_path(folder, DOORS) as path:
            doors.bind(path)
        doors.listen(_WAITING_CONNECTIONS)
        _in_background(_accept, doors, self._open_door)

    def listen(self, address: str, port: int) -> int:
        """Listen at an address of this host, at any port if ``port`` is 0; return which.

        Raises:
            AdvisorError: this host has no such address, or the port is taken.
        """
        outside = _listening(address, port)
        _in_background(_accept, outside, self._let_in)
        return int(outside.getsockname()[1])

    def _open_door(self, connection: socket.socket) -> None:
        """Serve a private network until the process in it ends."""
        with connection:
            try:
                door = Door(connection)
            except (OSError, ValueError):
                return
            network = door.routes.network
            with self._changes:
                if network in self._doors:
                    return
                self._doors[network], self._carried[network] = door, set()
            try:
                for listening, (port, address, far_port) in zip(
                    door.listening, door.routes.far, strict=True
                ):
                    greeting = Greeting(purpose=Purpose.DATA, network=network, port=port)
                    lead = partial(self._lead_out, address, far_port, greeting)
                    _in_background(_accept, listening, lead)
                with contextlib.suppress(OSError):
                    door.tell_open()
                    door.wait_for_end()
            finally:
                self._forget(network)

    def _forget(self, network: int) -> None:
        with self._changes:
            door = self._doors.pop(network)
            for near, far in self._carried.pop(network):
                for each in (near, far.socket):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
        door.close()

    def _lead_out(self, address: str, port: int, greeting: Greeting, near: socket.socket) -> None:
        """Join a connection that was made in a private network with one to another host."""
        with near:
            try:
                far = self._greeter.dial(address, port, greeting)
            except OSError:
                break_when_closed(near)  # TensorFlow tries again by itself.
                return
            with far:
                self._carry(greeting.network, near, far)

    def _let_in(self, plain: socket.socket) -> None:
        """Join a connection from another host with one in a private network, if it may have one."""
        with plain:
            if not self._greeted.acquire(blocking=False):
                return
            try:
                found = self._greet(plain)
            except OSError:
                return
            finally:
                self._greeted.release()
            near, far, greeting = found
            with near:
                if greeting.purpose is Purpose.CONTROL:
                    carry(near, far)
                else:
                    self._carry(greeting.network, near, far)

    def _greet(self, plain: socket.socket) -> tuple[socket.socket, TlsStream, Greeting]:
        far, greeting = self._greeter.hear(plain)
        try:
            near = self._reach(greeting)
        except OSError:
            answer(far, welcome=False)
            raise
        try:
            answer(far, welcome=True)
        except OSError:
            near.close()
            raise
        return near, far, greeting

    def _reach(self, greeting: Greeting) -> socket.socket:
        """Connect to what a peer asks for.

        Raises:
            OSError: nobody is there, or it is not served.
        """
        if greeting.purpose is Purpose.CONTROL:
            return self._reach_control()
        with self._changes:
            door = self._doors.get(greeting.network)
        if door is None or greeting.port not in door.routes.near:
            raise ConnectionRefusedError(f"port {greeting.port} is not served")
        return door.connect(greeting.port)

    def _reach_control(self) -> socket.socket:
        control = socket.socket(socket.AF_UNIX)
        try:
            with socket_path(self._folder, CONTROL) as path:
                control.connect(path)
        except OSError:
            control.close()
            raise
        return control

    def _carry(self, network: int, near: socket.socket, far: TlsStream) -> None:
        """Carry bytes for as long as the network is there."""
        joined = near, far
        with self._changes:
            if network not in self._carried:
                return
            self._carried[network].add(joined)
        try:
            carry(near, far)
        finally:
            with self._changes:
                self._carried.get(network, set()).discard(joined)


def _listening(address: str, port: int) -> socket.socket:
    family, place = _own_address(address, port)
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # An IPv6 address, and no IPv4 one in its clothes.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(place)
        listening.listen(_WAITING_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise AdvisorError(
            f"cannot listen at {address} port {port}: {error.strerror}",
            hint="name an address that this host has, and a port that nobody uses",
        ) from None
    return listening


def _own_address(address: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Return where to listen for an address or a name of this host.

    Raises:
        AdvisorError: it is none, means every address, or none that other hosts reach.
    """
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AdvisorError(f"{address} is no address: {error.strerror}") from None
    places = [(family, place) for family, _, _, _, place in found]
    # Some ways to write an address mean all of them, an empty one among them.
    if address not in EVERYWHERE and any(_ip(place).is_unspecified for _, place in places):
        raise AdvisorError(
            f"{address!r} means every address of this host",
            hint="name one, or one of " + ", ".join(EVERYWHERE),
        )
    reached = [each for each in places if not _ip(each[1]).is_loopback]
    # Debian gives a host's own name such an address, on that host alone.
    if not reached and address not in (LOCALHOST, str(_ip(places[0][1]))):
        raise AdvisorError(
            f"{address} is {_ip(places[0][1])} on that host, which no other one reaches",
            hint="name its address in the network that the hosts share",
        )
    return (reached or places)[0]


def _ip(place: tuple[object, ...]) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(str(place[0]))


def _accept(listening: socket.socket, handle: Callable[[socket.socket], None]) -> None:
    """Handle each connection in a thread of its own, until the listening socket is shut down."""
    with listening:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError as error:
                if error.errno == errno.EINVAL:
                    return
                time.sleep(_PAUSE_S)
                continue
            _in_background(handle, connection)


def _in_background(function: Callable[..., None], *args: object) -> None:
    threading.Thread(target=function, args=args, name="relay", daemon=True).start()
