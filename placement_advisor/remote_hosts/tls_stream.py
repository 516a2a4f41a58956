"""A TCP connection between two hosts, under TLS: set up within limits, then one thread each way.

OpenSSL's connections are not made for two threads: shared without care, they have been seen to lose
a message in a thousand. So TLS works on memory here, apart from the socket, and is used by one
thread at a time, which never waits in it. That also saves system calls: a chunk of many records is
one of them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

# Between hosts. A dead path ends a connection after 8 s: by these three where it is idle, by the
# fourth where data is under way. What a full link delays by less, and every link does, it bears.
_IDLE_S, _INTERVAL_S, _PROBES = 2, 2, 3
_UNANSWERED_MS = 8_000
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
# Read at once: more saves no time any more (`relay`, before 0.2).
CHUNK_BYTES = 1 << 18
# What is kept of a record whose end is still to come: 16 kB and some.
_RECORD_BYTES = 1 << 15
_NOTHING = memoryview(b"")


class TlsStream:
    """A connection to another host. Whoever is at its other end has not said a word unverified."""

    def __init__(
        self, plain: socket.socket, context: ssl.SSLContext, *, serving: bool, limit_s: float
    ) -> None:
        """Take over a connection; until `go_on` all must be done within ``limit_s``."""
        for level, option, value in _OPTIONS:
            plain.setsockopt(level, option, value)
        self.socket = plain
        self._deadline = time.monotonic() + limit_s
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_side=serving)
        self._one_uses = threading.Lock()
        # What came with the peer's greeting; whether it has said that no more comes.
        self._early, self._has_ended = _NOTHING, False
        self._raw = memoryview(bytearray(CHUNK_BYTES))
        self._clear = memoryview(bytearray(CHUNK_BYTES + _RECORD_BYTES))

    def shake_hands(self, certificate: bytes) -> None:
        """Agree on keys with a peer that has this very certificate (DER) and its key.

        Raises:
            OSError: the peer is none, breaks off, or takes too long.
        """
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send_all()
                self._receive_some()
            except ssl.SSLError:
                self._send_all()  # Tells the peer why.
                raise
        self._send_all()
        if self._tls.getpeercert(binary_form=True) != certificate:
            raise ConnectionRefusedError("the peer has another certificate")

    def tell(self, message: bytes) -> None:
        """Send a message of a few bytes.

        Raises:
            OSError: as `shake_hands`.
        """
        self._tls.write(message)
        self._send_all()

    def hear(self, size: int) -> bytes:
        """Return the next bytes, of a number that is known.

        Raises:
            OSError: as `shake_hands`.
        """
        heard = b""
        while len(heard) < size:
            try:
                more = self._tls.read(size - len(heard))
            except ssl.SSLWantReadError:
                self._receive_some()
                continue
            if not more:
                raise ConnectionResetError("the peer has ended the connection")
            heard += more
        return heard

    def go_on(self) -> None:
        """Leave the time limit behind, and all that is said one after the other."""
        self.socket.settimeout(None)
        self._early = self._take_out()

    def send(self, data: memoryview) -> None:
        """Send data, in one of two threads.

        Raises:
            OSError: the connection is broken.
        """
        with self._one_uses:
            self._tls.write(data)
            leaving = self._leaving.read()
        self.socket.sendall(leaving)

    def send_end(self) -> None:
        """Say that no more data comes; the peer may go on as long as it likes.

        Raises:
            OSError: the connection is broken.
        """
        with self._one_uses:
            # It looks for the same word of the peer, too; all that has come has been taken out.
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
            leaving = self._leaving.read()
        self.socket.sendall(leaving)

    def receive(self) -> memoryview:
        """Return data, in the other thread; it is good until the next call, and empty at the end.

        Raises:
            OSError: the connection is broken, ended without a word, or somebody tampers with it.
        """
        data, self._early = self._early, _NOTHING
        while not data and not self._has_ended:
            size = self.socket.recv_into(self._raw)
            with self._one_uses:
                if size:
                    self._arrived.write(self._raw[:size])
                else:
                    self._arrived.write_eof()
                data = self._take_out()
        return data

    def __enter__(self) -> TlsStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.socket.close()

    def _take_out(self) -> memoryview:
        """Decrypt all that has arrived, and see whether it is the last."""
        size = 0
        with contextlib.suppress(ssl.SSLWantReadError):
            with contextlib.suppress(ssl.SSLZeroReturnError):
                while more := self._read_into(self._clear[size:]):
                    size += more
            self._has_ended = True
        return self._clear[:size]

    def _read_into(self, buffer: memoryview) -> int:
        # Its type is told wrong: with a buffer it returns how much it has read (typeshed 2026).
        read: Any = self._tls.read(len(buffer), buffer)
        return int(read)

    def _send_all(self) -> None:
        self._wait_no_longer_than_allowed()
        self.socket.sendall(self._leaving.read())

    def _receive_some(self) -> None:
        self._wait_no_longer_than_allowed()
        received = self.socket.recv(_RECORD_BYTES)
        if received:
            self._arrived.write(received)
        else:
            self._arrived.write_eof()

    def _wait_no_longer_than_allowed(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the peer takes too long")
        self.socket.settimeout(left)
