"""Connections between hosts under TLS: shared secret, handshake, and forwarding of bytes."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import ssl
import stat
import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import open_plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


# For a file that stays on the hosts until somebody replaces it.
KEPT_DAYS = 20 * 365
# For one analysis: the longest takes hours.
ANALYSIS_DAYS = 2
# Clocks of hosts differ; a certificate of one whose clock is ahead must be good on the others.
_BEFORE = datetime.timedelta(days=1)
_NAME = "placement-advisor"
# One of ours has 800 bytes.
_LONGEST_BYTES = 10_000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_HINT = "`advisor worker --new-secret FILE` makes one; every host gets a copy of it"


def new_secret(valid_days: int) -> bytes:
    """Make a secret that is good from now for some days."""
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
        .not_valid_after(now + datetime.timedelta(days=valid_days))
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


def write_secret(path: Path) -> None:
    """Make a secret for years and write it to a new file that its owner alone can read.

    Raises:
        AdvisorError: there is such a file already, or it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AdvisorError(
            f"{path}: exists already", hint="hosts may be using it: name another file"
        ) from None
    except OSError as error:
        raise AdvisorError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new_secret(KEPT_DAYS))
    except OSError as error:
        path.unlink()
        raise AdvisorError(f"{path}: cannot be written: {error.strerror}") from None


def read_secret(path: Path) -> bytes:
    """Return the secret in a file.

    Raises:
        AdvisorError: there is none, it is no longer good, or others can read it too.
    """
    try:
        with open_plain(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(_LONGEST_BYTES + 1)
    except OSError as error:
        raise AdvisorError(f"{path}: {error.strerror}", hint=_HINT) from None
    if mode & _OTHERS:
        raise AdvisorError(
            f"{path}: not only its owner can read it (mode {stat.S_IMODE(mode):04o})",
            hint=f"`chmod 600 {path}`; if somebody else may have read it, make a new one",
        )
    _check(secret, path)
    return secret


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


def _check(secret: bytes, path: Path) -> None:
    """Check that bytes are a secret: one key, one certificate of it, which is good now."""
    from cryptography import x509

    try:
        if len(secret) > _LONGEST_BYTES:
            raise ValueError("too long")
        _context(secret, ssl.PROTOCOL_TLS_CLIENT)  # Checks that key and certificate are a pair.
        found = x509.load_der_x509_certificate(certificate(secret))
    except (ValueError, ssl.SSLError):
        raise AdvisorError(
            f"{path}: is no secret of ours: one private key and its certificate", hint=_HINT
        ) from None
    now = datetime.datetime.now(datetime.UTC)
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        raise AdvisorError(
            f"{path}: is good from {found.not_valid_before_utc:%Y-%m-%d} to"
            f" {found.not_valid_after_utc:%Y-%m-%d}; today is {now:%Y-%m-%d}",
            hint=_HINT,
        )


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
# Read at once: more saves no time any more (tests/benchmarks/relay.py).
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


# On, and no time to linger: a reset instead of an end.
_AT_ONCE = struct.pack("ii", 1, 0)


def carry(near: socket.socket, far: TlsStream) -> None:
    """Carry bytes until both ends have said that they send no more, or one breaks.

    The caller closes both.
    """
    near.settimeout(None)
    far.go_on()
    _Carried(near, far).run()


def break_when_closed(connection: socket.socket) -> None:
    """Let a connection break when it is closed: its other end must not take that for an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


class _Carried:
    """Two connections that are joined."""

    def __init__(self, near: socket.socket, far: TlsStream) -> None:
        self._near, self._far = near, far
        self._broken = self._gives = False

    def run(self) -> None:
        """Carry to the end of both directions."""
        outwards = threading.Thread(target=self._move, args=(self._outwards,), daemon=True)
        outwards.start()
        self._move(self._inwards)
        outwards.join()

    def _move(self, carry: Callable[[], None]) -> None:
        try:
            carry()
        except OSError:
            self._break()

    def _outwards(self) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        while size := self._near.recv_into(buffer):
            self._far.send(buffer[:size])
        self._far.send_end()

    def _inwards(self) -> None:
        while data := self._far.receive():
            self._gives = True
            if self._broken:
                return
            self._near.sendall(data)
            self._gives = False
        self._near.shutdown(socket.SHUT_WR)

    def _break(self) -> None:
        """Let both connections break, and whoever waits for one of them in the other thread."""
        self._broken = True
        for each in (self._near, self._far.socket):
            break_when_closed(each)
        # To shut a connection down for writing says that it ends: only where somebody waits to
        # write, whose reader then does not get to that before it breaks.
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR if self._gives else socket.SHUT_RD)
        with contextlib.suppress(OSError):
            self._far.socket.shutdown(socket.SHUT_RDWR)
