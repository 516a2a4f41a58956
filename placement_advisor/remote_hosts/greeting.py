"""How a connection between hosts begins: TLS, then what it is for, then whether that is served.

The end that connects says in 16 bytes whether it brings the control of an analysis or leads to a
port of a private network. It is answered with one byte. Until then nobody has reached anything.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from placement_advisor.remote_hosts.secret import certificate, client_context, server_context
from placement_advisor.remote_hosts.tls_stream import TlsStream

# Three round trips, each with a lost packet or two.
LIMIT_S = 5.0
_FORM = struct.Struct(">4sBxHQ")
_MARK = b"pla1"
_WELCOME, _REFUSED = b"+", b"-"


class Purpose(IntEnum):
    """What a connection between hosts is for."""

    CONTROL = 1
    DATA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What the end that connects says first; ``network`` and ``port`` are those of data."""

    purpose: Purpose
    network: int = 0
    port: int = 0


class Greeter:
    """Begins connections between holders of a secret, on either end."""

    def __init__(self, secret: bytes) -> None:
        """Hold a secret."""
        self._client, self._server = client_context(secret), server_context(secret)
        self._certificate = certificate(secret)

    def dial(self, address: str, port: int, greeting: Greeting) -> TlsStream:
        """Connect to another host for a purpose.

        Raises:
            OSError: it cannot be reached, is no holder of the secret, or does not serve that.
        """
        plain = socket.create_connection((address, port), timeout=LIMIT_S)
        try:
            far = TlsStream(plain, self._client, serving=False, limit_s=LIMIT_S)
            far.shake_hands(self._certificate)
            said = _FORM.pack(_MARK, greeting.purpose, greeting.port, greeting.network)
            far.tell(said)
            if far.hear(len(_WELCOME)) != _WELCOME:
                raise ConnectionRefusedError(f"{address}:{port} does not serve that")
        except OSError:
            plain.close()
            raise
        return far

    def hear(self, plain: socket.socket) -> tuple[TlsStream, Greeting]:
        """Hear on a new connection what it is for.

        Raises:
            OSError: the other end is no holder of the secret, or says nothing that is understood.
        """
        far = TlsStream(plain, self._server, serving=True, limit_s=LIMIT_S)
        far.shake_hands(self._certificate)
        mark, purpose, port, network = _FORM.unpack(far.hear(_FORM.size))
        if mark != _MARK or purpose not in list(Purpose):
            raise ConnectionRefusedError("another version of us, or another program")
        return far, Greeting(purpose=Purpose(purpose), network=network, port=port)


def answer(far: TlsStream, *, welcome: bool) -> None:
    """Say whether what a connection is for is served.

    Raises:
        OSError: the other end is gone.
    """
    far.tell(_WELCOME if welcome else _REFUSED)
