"""One end of a TCP connection, run on a host: `echo.py serve`, or `echo.py HOST BYTES TIMES`.

The server says "ready" when it listens, and answers each message with one byte; the other end
prints how long each of some messages of a size took there and back, in ns.
"""

from __future__ import annotations

import socket
import sys
import time

_PORT = 5_000
_SIZE_BYTES = 8
_CHUNK_BYTES = 1 << 18


def _serve() -> None:
    with socket.create_server(("", _PORT)) as listening:
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while header := connection.recv(_SIZE_BYTES, socket.MSG_WAITALL):
                    left = int.from_bytes(header, "big")
                    while left:
                        left -= len(connection.recv(min(left, _CHUNK_BYTES)))
                    connection.sendall(b".")


def _send(host: str, size_bytes: int, times: int) -> None:
    message = size_bytes.to_bytes(_SIZE_BYTES, "big") + bytes(size_bytes)
    with socket.create_connection((host, _PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(times):
            begun_ns = time.perf_counter_ns()
            connection.sendall(message)
            connection.recv(1)
            print(time.perf_counter_ns() - begun_ns, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    else:
        _send(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
