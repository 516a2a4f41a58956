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

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_INTERFACE_REQUEST = "16sh14x"


def create() -> bool:
    """Put this process into a new network with loopback up; False where the system refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    privileged = os.geteuid() == 0
    if libc.unshare(_CLONE_NEWNET if privileged else _CLONE_NEWUSER | _CLONE_NEWNET) != 0:
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
    kinds = ("net",) if os.geteuid() == 0 else ("user", "net")
    for kind in kinds:
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        try:
            if libc.setns(descriptor, 0) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"cannot join the {kind} namespace: {os.strerror(code)}")
        finally:
            os.close(descriptor)
