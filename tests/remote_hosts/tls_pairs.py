"""Two holders of a secret, joined by TCP on this machine's loopback."""

import asyncio
import socket

from placement_advisor.remote_hosts.tls import Greeter, Greeting, answer


def tcp_pair():
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return one, other


async def tls_pair(secret):
    """Return both ends of a connection that has begun."""
    greeter = Greeter(secret)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        dialled = asyncio.ensure_future(
            greeter.dial("127.0.0.1", port, Greeting(network=1, port=20_000))
        )
        accepted, _ = await asyncio.to_thread(listening.accept)
        server, _ = await greeter.accept(accepted)
    await answer(server, welcome=True)
    return await dialled, server
