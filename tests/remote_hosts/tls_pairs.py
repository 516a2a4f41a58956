"""Two holders of a secret, joined by TCP on this machine's loopback."""

from __future__ import annotations

import socket
import threading

from placement_advisor.remote_hosts.tls import (
    TlsStream,
    carry,
    certificate,
    client_context,
    server_context,
)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    return one, other


def tls_pair(secret: bytes) -> tuple[TlsStream, TlsStream]:
    """Return both ends of a connection, hands shaken."""
    plain = tcp_pair()
    client = TlsStream(plain[0], client_context(secret), serving=False, limit_s=10.0)
    server = TlsStream(plain[1], server_context(secret), serving=True, limit_s=10.0)
    other = threading.Thread(target=server.shake_hands, args=(certificate(secret),))
    other.start()
    client.shake_hands(certificate(secret))
    other.join()
    return client, server


def carried(near: socket.socket, far: TlsStream) -> threading.Thread:
    """Carry between two connections in a thread, and close both."""

    def run() -> None:
        with near, far:
            carry(near, far)

    thread = threading.Thread(target=run)
    thread.start()
    return thread
