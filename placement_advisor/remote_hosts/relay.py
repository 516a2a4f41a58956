"""The relay of a host: what TensorFlow sends to other hosts leaves and arrives here."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import select
import socket
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.remote_hosts import tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from concurrent.futures import Future
    from typing import Any


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


def open_network(
    folder: str, network: int, near: tuple[int, ...], far: tuple[tuple[int, str, int], ...]
) -> None:
    """Open the network in which this process is, and others on other hosts, to this host's relay.

    ``folder`` is the relay's. ``network`` is the number of the network, the same on all hosts and
    drawn anew for each, so that what is left of one never meets another. On ``near`` ports workers
    of this host listen. Every ``far`` port is that of a worker elsewhere, with address and port of
    the relay there. Runs in a child.

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
    """A door as the relay sees it: one connection, which lasts as long as the network.

    What it says is what `open_network` is given.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Take what a door says and passes when it opens.

        Raises:
            OSError: it is gone, or takes too long.
            ValueError: it is no door.
        """
        self._connection = connection
        self._one_asks = threading.Lock()
        connection.settimeout(_LIMIT_S)
        self.network, self.near, self.far = json.loads(connection.recv(_LONGEST_MESSAGE_BYTES))
        self.listening = tuple(self._passed() for _ in self.far)

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


# Strangers can have so many connections for as long as a greeting may take.
_GREETED_AT_ONCE = 64
# Where no more files can be opened, until some are closed.
_PAUSE_S = 0.1

_relay: Relay | None = None


def start(folder: str, secret: bytes, address: str | None) -> int | None:
    """Become the relay of this host; return the port at which other hosts reach it.

    It has one private folder, in which doors open. Without an ``address`` it only leads outwards,
    and listens nowhere.

    Raises:
        AdvisorError: this host has no such address.
    """
    global _relay
    _relay = Relay(Path(folder), secret)
    return None if address is None else _relay.listen(address)


class Relay:
    """Joins connections of private networks with those of other hosts."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        """Wait for doors in a folder."""
        self._greeter = tls.Greeter(secret)
        self._greeted = 0
        self._loop = loop_in_background()
        self._networks: dict[int, _Network] = {}
        doors = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket_path(folder, DOORS) as path:
            doors.bind(path)
        doors.listen(_WAITING_CONNECTIONS)
        self._call(self._accept(doors, self._open_door))

    def listen(self, address: str) -> int:
        """Listen at an address of this host; return at which port.

        Raises:
            AdvisorError: this host has no such address.
        """
        outside = _listening(address)
        self._call(self._accept(outside, self._let_in))
        return int(outside.getsockname()[1])

    def _call(self, coroutine: Coroutine[Any, Any, object]) -> Future[object]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _accept(
        self, listening: socket.socket, handle: Callable[[socket.socket], Awaitable[None]]
    ) -> None:
        """Handle each connection in a task of its own, until this task is cancelled."""
        listening.setblocking(False)
        tasks: set[asyncio.Future[None]] = set()
        with listening:
            while True:
                try:
                    connection, _ = await self._loop.sock_accept(listening)
                except OSError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                task = asyncio.ensure_future(handle(connection))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _open_door(self, connection: socket.socket) -> None:
        """Serve a private network until the process in it ends."""
        thread = threading.Thread(target=self._serve_door, args=(connection,), daemon=True)
        thread.start()

    def _serve_door(self, connection: socket.socket) -> None:
        with connection:
            try:
                door = Door(connection)
            except (OSError, ValueError):
                return
            network = door.network
            if not self._call(self._open_network(network, door)).result():
                return
            try:
                with contextlib.suppress(OSError):
                    door.tell_open()
                    door.wait_for_end()
            finally:
                self._call(self._forget(network)).result()
                door.close()

    async def _open_network(self, network: int, door: Door) -> bool:
        """Lead connections of a private network out, unless it is open already."""
        if network in self._networks:
            return False
        here = self._networks[network] = _Network(door=door)
        for listening, (port, address, far_port) in zip(door.listening, door.far, strict=True):
            greeting = tls.Greeting(network=network, port=port)
            lead = partial(self._lead_out, address, far_port, greeting)
            here.keep(asyncio.ensure_future(self._accept(listening, lead)))
        return True

    async def _forget(self, network: int) -> None:
        """Break all connections of a network."""
        for task in self._networks.pop(network).tasks:
            task.cancel()

    async def _lead_out(
        self, address: str, port: int, greeting: tls.Greeting, plain: socket.socket
    ) -> None:
        """Join a connection that was made in a private network with one to another host."""
        near = await tls.join(plain)
        try:
            far = await self._greeter.dial(address, port, greeting)
        except OSError:
            near.reset()  # TensorFlow tries again by itself.
            return
        await self._carry(greeting, near, far)

    async def _let_in(self, plain: socket.socket) -> None:
        """Join a connection from another host with one in a private network, if it may have one."""
        if self._greeted >= _GREETED_AT_ONCE:
            plain.close()
            return
        self._greeted += 1
        try:
            far, greeting = await self._greeter.accept(plain)
            try:
                near = await tls.join(await self._reach(greeting))
            except OSError:
                await tls.answer(far, welcome=False)
                return
            await tls.answer(far, welcome=True)
        except OSError:
            return
        finally:
            self._greeted -= 1
        await self._carry(greeting, near, far)

    async def _reach(self, greeting: tls.Greeting) -> socket.socket:
        """Connect to what a peer asks for.

        Raises:
            OSError: nobody is there, or it is not served.
        """
        network = self._networks.get(greeting.network)
        if network is None or greeting.port not in network.door.near:
            raise ConnectionRefusedError(f"port {greeting.port} is not served")
        return await asyncio.to_thread(network.door.connect, greeting.port)

    async def _carry(
        self, greeting: tls.Greeting, near: tls.Connection, far: tls.Connection
    ) -> None:
        """Carry bytes for as long as the network is there."""
        carried = asyncio.ensure_future(tls.carry(near, far))
        network = self._networks.get(greeting.network)
        if network is None:
            carried.cancel()
        else:
            network.keep(carried)
        await asyncio.wait([carried])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Network:
    """A private network that is open: its door, and what goes on for it."""

    door: Door
    tasks: set[asyncio.Future[None]] = field(default_factory=set)

    def keep(self, task: asyncio.Future[None]) -> None:
        """Keep a task until it is done, or the network ends."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def loop_in_background() -> asyncio.AbstractEventLoop:
    """Return an event loop that runs in a thread of its own until it is stopped."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    threading.Thread(target=run, name="relay", daemon=True).start()
    return loop


def _listening(address: str) -> socket.socket:
    family, place = _own_address(address)
    listening = socket.socket(family)
    try:
        if family == socket.AF_INET6:  # An IPv6 address, and no IPv4 one in its clothes.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(place)
        listening.listen(_WAITING_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise AdvisorError(
            f"cannot listen at {address}: {error.strerror}",
            hint="name an address that this host has",
        ) from None
    return listening


def _own_address(address: str) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Return where to listen for an address or a name of this host: at any port that is free.

    Raises:
        AdvisorError: it is none, means every address, or none that other hosts reach.
    """
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AdvisorError(f"{address} is no address: {error.strerror}") from None
    places = [(family, place) for family, _, _, _, place in found]
    if any(_ip(place).is_unspecified for _, place in places):
        raise AdvisorError(
            f"{address!r} means every address of that host",
            hint="name the one at which the other hosts reach it",
        )
    reached = [each for each in places if not _ip(each[1]).is_loopback]
    # Debian gives a host's own name such an address, on that host alone.
    if not reached and address not in ("localhost", str(_ip(places[0][1]))):
        raise AdvisorError(
            f"{address} is {_ip(places[0][1])} on that host, which no other one reaches",
            hint="name its address in the network that the hosts share",
        )
    return (reached or places)[0]


def _ip(place: tuple[object, ...]) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(str(place[0]))
