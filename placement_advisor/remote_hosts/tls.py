"""Connections between hosts under TLS: shared secret, handshake, and forwarding of bytes.

Both ends hold the same secret, a private key with its certificate, and accept no other. A
connection begins with a greeting that says where it leads. From then on its bytes are in frames,
so that an end that was said is told apart from a connection that broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


# A secret is made for one analysis; the longest takes hours.
_VALID = datetime.timedelta(days=2)
# Clocks of hosts differ; a certificate of one whose clock is ahead must be good on the others.
_BEFORE = datetime.timedelta(days=1)
_NAME = "placement-advisor"


def new_secret() -> bytes:
    """Make a secret that is good for one analysis, from now on."""
    # Takes a tenth of a second, and most commands need none.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _VALID)
        # It vouches for nobody but its holder.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded + certificate.public_bytes(serialization.Encoding.PEM)


def server_context(secret: bytes) -> ssl.SSLContext:
    """Return what the accepting end of connections between holders of a secret goes by."""
    context = _context(secret, ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # Every connection shows the certificate anew.
    return context


def client_context(secret: bytes) -> ssl.SSLContext:
    """Return what the connecting end of connections between holders of a secret goes by."""
    return _context(secret, ssl.PROTOCOL_TLS_CLIENT)


def certificate(secret: bytes) -> bytes:
    """Return the certificate of a secret as a peer shows it (DER)."""
    return ssl.PEM_cert_to_DER_cert(_certificate_text(secret))


def _context(secret: bytes, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # Who holds the secret is a peer, under whatever name.
    context.verify_mode = ssl.CERT_REQUIRED
    # Some builds of Python take a connection that breaks for one that has ended.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.load_verify_locations(cadata=_certificate_text(secret))
    # A key is read from a file alone: one that has no name and is gone when it is closed.
    descriptor = os.memfd_create(_NAME)
    try:
        os.write(descriptor, secret)
        # Without a password OpenSSL would ask the terminal for that of somebody else's key.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)
    return context


def _certificate_text(secret: bytes) -> str:
    head = f"{ssl.PEM_HEADER}\n"
    return head + secret.decode("ascii").partition(head)[2]


# A dead path ends a connection after 8 s: by the first four where it is idle, by the fifth where
# data is under way. What a full link delays by less, and every link does, it bears.
_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 8_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
# Three round trips, each with a lost packet or two.
LIMIT_S = 5.0
# Read at once: more saves no time any more (tests/benchmarks/relay.py).
_CHUNK_BYTES = 1 << 18
_FRAME = struct.Struct(">I")
_END = _FRAME.pack(0)
_GREETING = struct.Struct(">4sHQ")
_MARK = b"pla3"
_WELCOME, _REFUSED = b"+", b"-"
# Closed with no time to linger, a connection is reset: its other end cannot take that for an end.
_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What the end that connects says first: to which port of which network it leads."""

    network: int
    port: int


class Connection(NamedTuple):
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def reset(self) -> None:
        """Break it off: whoever reads or writes at the other end gets an error."""
        plain = self.writer.get_extra_info("socket")  # None if it is broken already.
        if plain is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close it when all that was written has left, unless it is broken."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def join(plain: socket.socket) -> Connection:
    """Return a connection of this machine that is open already."""
    return Connection(*await asyncio.open_connection(sock=plain, limit=_CHUNK_BYTES))


class Greeter:
    """Begins connections between holders of a secret, on either end."""

    def __init__(self, secret: bytes) -> None:
        """Hold a secret."""
        self._client, self._server = client_context(secret), server_context(secret)
        self._certificate = certificate(secret)

    async def dial(self, address: str, port: int, greeting: Greeting) -> Connection:
        """Connect to another host.

        Raises:
            OSError: it cannot be reached, is no holder of the secret, or does not serve that port.
        """
        async with asyncio.timeout(LIMIT_S):
            far = Connection(
                *await asyncio.open_connection(
                    address,
                    port,
                    ssl=self._client,
                    server_hostname="",
                    ssl_shutdown_timeout=LIMIT_S,
                    limit=_CHUNK_BYTES,
                )
            )
            with _reset_on_error(far):
                self._check(far)
                far.writer.write(_GREETING.pack(_MARK, greeting.port, greeting.network))
                if await far.reader.readexactly(len(_WELCOME)) != _WELCOME:
                    raise ConnectionRefusedError(f"{address}:{port} does not serve that")
        return far

    async def accept(self, plain: socket.socket) -> tuple[Connection, Greeting]:
        """Hear on a new connection where it leads.

        Raises:
            OSError: the other end is no holder of the secret, or says nothing that is understood.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_CHUNK_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        async with asyncio.timeout(LIMIT_S):
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, plain, ssl=self._server, ssl_shutdown_timeout=LIMIT_S
            )
            far = Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
            with _reset_on_error(far):
                self._check(far)
                said = await far.reader.readexactly(_GREETING.size)
                mark, port, network = _GREETING.unpack(said)
                if mark != _MARK:
                    raise ConnectionRefusedError("another version of us, or another program")
        return far, Greeting(network=network, port=port)

    def _check(self, far: Connection) -> None:
        """Check that the peer has this very certificate, and set what ends a dead path."""
        shown = far.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown != self._certificate:
            raise ConnectionRefusedError("the peer has another certificate")
        for option in _OPTIONS:
            far.writer.get_extra_info("socket").setsockopt(*option)


@contextlib.contextmanager
def _reset_on_error(far: Connection) -> Iterator[None]:
    try:
        yield
    except EOFError:
        far.reset()
        raise ConnectionResetError("the peer has ended the connection") from None
    except BaseException:
        far.reset()
        raise


async def answer(far: Connection, *, welcome: bool) -> None:
    """Say whether the port of a connection is served; a connection that is refused ends.

    Raises:
        OSError: the other end is gone.
    """
    far.writer.write(_WELCOME if welcome else _REFUSED)
    await far.writer.drain()
    if not welcome:
        await far.close()


async def carry(near: Connection, far: Connection) -> None:
    """Carry bytes until both ends have said that they send no more, or one breaks; close both."""
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_outwards(near.reader, far.writer))
            both.create_task(_inwards(far.reader, near.writer))
    except* (OSError, EOFError):
        near.reset()
        far.reset()
    finally:
        await near.close()
        await far.close()


async def _outwards(near: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
    while data := await near.read(_CHUNK_BYTES):
        far.write(_FRAME.pack(len(data)) + data)
        await far.drain()
    far.write(_END)
    await far.drain()


async def _inwards(far: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
    while size := _FRAME.unpack(await far.readexactly(_FRAME.size))[0]:
        while size:
            data = await far.read(min(size, _CHUNK_BYTES))
            if not data:
                raise EOFError
            near.write(data)
            await near.drain()
            size -= len(data)
    near.write_eof()
