"""A system that gives no namespaces, as containers have it, for one process and what it starts.

Source: seccomp(2), the profile with which Docker starts containers.
"""

import ctypes
import errno
import platform
import struct

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
# The numbers of `unshare` and `setns`.
_REFUSED = {"x86_64": (272, 308), "aarch64": (97, 268)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_namespaces():
    """Let this process, and all that it starts, get no namespace of its own."""
    unshare, setns = _REFUSED[platform.machine()]
    steps = (
        (_LOAD, 0, 0, 0),  # The number of the call.
        (_JUMP_IF_EQUAL, 1, 0, unshare),
        (_JUMP_IF_EQUAL, 0, 1, setns),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    text = b"".join(struct.pack("=HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), text)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or (
        libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program)) != 0
    ):
        raise OSError(ctypes.get_errno(), "no filter of system calls can be set")
