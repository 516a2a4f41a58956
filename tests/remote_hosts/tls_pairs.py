"""Two holders of a secret, joined by TCP on this machine's loopback."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from placement_advisor.remote_hosts.tls import Connection, Greeter, Greeting, Purpose, answer

if TYPE_CHECKING:
    from placement_advisor.remote_hosts.tls import Connection


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return one, other


async def tls_pair(secret: bytes) -> tuple[Connection, Connection]:
    """Return both ends of a connection that has begun."""
    greeter = Greeter(secret)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        dialled = asyncio.ensure_future(
            greeter.dial("127.0.0.1", port, Greeting(purpose=Purpose.DATA))
        )
        accepted, _ = await asyncio.to_thread(listening.accept)
        server, _ = await greeter.accept(accepted)
    await answer(server, welcome=True)
    return await dialled, server
