"""Control by the port of the relay: for hosts on which a service waits, without ssh or the like.

`advisor worker --listen` has one port for all. The relay, a child, keeps it; what is control it
joins with a Unix socket of the service, in a folder that only this user can enter. Each analysis
has a thread there. That only one is served is the host's lock's to see to (`host_lock.py`).
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
from functools import partial
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.processes.calls import expect
from placement_advisor.processes.children import Child, preload
from placement_advisor.remote_hosts import relay
from placement_advisor.remote_hosts.door import socket_path
from placement_advisor.remote_hosts.greeting import Greeter, Greeting, Purpose
from placement_advisor.remote_hosts.pump import carry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import NoReturn

    from placement_advisor.processes.calls import CallFailure
    from placement_advisor.remote_hosts.tls_stream import TlsStream

_PLACE = re.compile(r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^:]*)):(?P<port>\d{1,5})", re.ASCII)
_PORTS = range(1, 1 << 16)
_START_LIMIT_S = 60.0
# How soon the service notices that its relay is gone.
_LOOK_S = 1.0
_WAITING_CONNECTIONS = 8


def parse_place(text: str) -> tuple[str, int]:
    """Return address and port of `ADDR:PORT`; an IPv6 address stands in brackets.

    Raises:
        AdvisorError: the text is no such thing.
    """
    found = _PLACE.fullmatch(text)
    address = found and (found["bracketed"] or found["plain"])
    if not found or not address or int(found["port"]) not in _PORTS:
        raise AdvisorError(
            f"{text!r} is no address with a port",
            hint="for example 192.0.2.7:7000, [2001:db8::7]:7000",
        )
    return address, int(found["port"])


def place(address: str, port: int) -> str:
    """Return address and port as `parse_place` reads them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def check_may_listen(address: str, *, everywhere: bool) -> None:
    """Check that nobody listens at every address of a host without having said so twice.

    Raises:
        AdvisorError: somebody would.
    """
    if address in relay.EVERYWHERE and not everywhere:
        raise AdvisorError(
            f"{address} means every network that this host is in",
            hint="name the address at which the other hosts reach it; --everywhere accepts all",
        )


def wait(
    address: str,
    port: int,
    secret: bytes,
    folder: Path,
    *,
    serve: Callable[[socket.socket, Path], None],
    opened: Callable[[], None],
) -> NoReturn:
    """Wait for analyses at a port until a signal ends this process.

    ``serve`` is called for each, in a thread of its own, with the relay's folder, in which the
    analysis may open doors (`door.py`). ``folder`` is one that only this user can enter.
    ``opened`` is called once the port is there.

    Raises:
        AdvisorError: this host has no such address, or the port is taken.
        TestbedError: the relay has died.
    """
    preload()
    with Child("relay") as child, waiting_for_control(folder) as waiting:

        def check() -> None:
            failure = child.failure()
            if failure is not None:
                raise _died(failure)

        started = child.call(
            relay.start, str(folder), secret, address, port, time_limit_s=_START_LIMIT_S
        )
        expect(started, _died)
        opened()
        serve_each(waiting, lambda connection: serve(connection, folder), check)


def waiting_for_control(folder: Path) -> socket.socket:
    """Return the socket at which a relay with that folder delivers control."""
    waiting = socket.socket(socket.AF_UNIX)
    with socket_path(folder, relay.CONTROL) as path:
        waiting.bind(path)
    waiting.listen(_WAITING_CONNECTIONS)
    return waiting


def serve_each(
    waiting: socket.socket, serve: Callable[[socket.socket], None], check: Callable[[], None]
) -> NoReturn:
    """Serve every connection in a thread of its own.

    ``check`` is called now and then, to end this by what it raises.
    """
    waiting.settimeout(_LOOK_S)
    while True:
        try:
            connection, _ = waiting.accept()
        except TimeoutError:
            check()
            continue
        _in_background(_on_connection, serve, connection)


def connect(address: str, port: int, secret: bytes) -> socket.socket:
    """Return a connection to a service that waits on another host.

    Raises:
        AdvisorError: it cannot be reached, or has another secret.
    """
    there = place(address, port)
    try:
        far = Greeter(secret).dial(address, port, Greeting(purpose=Purpose.CONTROL))
    except ssl.SSLError as error:
        raise AdvisorError(
            f"{there} has another secret, or is no `advisor worker`: {error.reason}",
            hint="every host needs a copy of the same file, and the time of day",
        ) from None
    except OSError as error:
        raise AdvisorError(
            f"{there} cannot be reached: {error.strerror or error}",
            hint="start `advisor worker --listen` there; see that no firewall is between",
        ) from None
    ours, theirs = socket.socketpair()
    _in_background(_carry, theirs, far)
    return ours


def _on_connection(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with connection:
        serve(connection)


def _carry(near: socket.socket, far: TlsStream) -> None:
    with near, far:
        carry(near, far)


def _died(failure: CallFailure) -> TestbedError:
    return TestbedError(f"the relay has ended: {failure.message}\n{failure.output_tail}".rstrip())


def _in_background(function: Callable[..., None], *args: object) -> None:
    threading.Thread(target=partial(function, *args), name="control", daemon=True).start()
