"""What hosts share to know one another: a private key and its certificate, in one PEM file.

Whoever holds it is a peer. Both ends of a connection show that certificate, prove that they have
its key, and accept no other. Left out: telling peers apart, and calling a secret back; a new one is
made and handed out instead.
"""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_file import open_plain

if TYPE_CHECKING:
    from pathlib import Path

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
