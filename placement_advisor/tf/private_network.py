"""A network of the testbed's own: TensorFlow's servers listen on every interface, unauthenticated.

In a private network namespace with nothing but loopback, no other host reaches them and two
analyses can use the same ports. Needs no privileges where the system lets users make namespaces.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_INTERFACE_REQUEST = "16sh14x"


def create() -> bool:
    """Put this process into a new network with loopback up; False where the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    # A network alone needs a privilege; root of a user namespace of one's own has it.
    if libc.unshare(_CLONE_NEWNET) != 0 and libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    with socket.socket() as probe:
        request = struct.pack(_INTERFACE_REQUEST, b"lo", 0)
        _, flags = struct.unpack(_INTERFACE_REQUEST, fcntl.ioctl(probe, _SIOCGIFFLAGS, request))
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack(_INTERFACE_REQUEST, b"lo", flags | _IFF_UP))
    return True


def join(pid: int) -> None:
    """Put this process into the network of another one that called `create`.

    Raises:
        OSError: the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        if theirs.readlink() == Path(f"/proc/self/ns/{kind}").readlink():
            continue
        descriptor = os.open(theirs, os.O_RDONLY)
        try:
            if libc.setns(descriptor, 0) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"cannot join the {kind} namespace: {os.strerror(code)}")
        finally:
            os.close(descriptor)
