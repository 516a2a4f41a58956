"""A network of the testbed's own: TensorFlow's servers listen on every interface, unauthenticated.

In a private network namespace with nothing but loopback, no other host reaches them and two
analyses can use the same ports. Needs no privileges where the system lets users make namespaces.
"""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from placement_advisor.errors import TestbedError

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_INTERFACE_REQUEST = "16sh14x"


def create() -> None:
    """Put this process into a new network with loopback up.

    Raises:
        TestbedError: the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # A network alone needs a privilege; root of a user namespace of one's own has it.
    if libc.unshare(_CLONE_NEWNET) != 0 and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        raise _refused(ctypes.get_errno())
    try:
        with socket.socket() as probe:
            request = struct.pack(_INTERFACE_REQUEST, b"lo", 0)
            _, flags = struct.unpack(_INTERFACE_REQUEST, fcntl.ioctl(probe, _SIOCGIFFLAGS, request))
            up = struct.pack(_INTERFACE_REQUEST, b"lo", flags | _IFF_UP)
            fcntl.ioctl(probe, _SIOCSIFFLAGS, up)
    except OSError as error:  # AppArmor grants the namespace, and no right within it.
        raise _refused(error.errno) from None


def join(pid: int) -> None:
    """Put this process into the network of another one that called `create`.

    Raises:
        TestbedError: the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # Each kind is named: systemd's RestrictNamespaces= refuses to join one that is not.
    for kind, flag in (("user", _CLONE_NEWUSER), ("net", _CLONE_NEWNET)):
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        if theirs.readlink() == Path(f"/proc/self/ns/{kind}").readlink():
            continue
        descriptor = os.open(theirs, os.O_RDONLY)
        try:
            if libc.setns(descriptor, flag) != 0:
                raise _refused(ctypes.get_errno())
        finally:
            os.close(descriptor)


def _refused(code: int | None) -> TestbedError:
    return TestbedError(
        f"this system allows no private network: {os.strerror(code or 0)}",
        hint="`advisor doctor` says how to allow one",
    )
