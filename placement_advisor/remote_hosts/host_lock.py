"""One analysis at a time on a host: two would measure each other.

A file in the user's cache folder is locked as long as one goes on, and says whose it is; the kernel
lets go of the lock when the process ends, however it does. A home that several hosts share has a
file for each, and so has each network of its own on one machine. Left out: analyses of other users,
and hosts where nothing can be written or locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from placement_advisor.errors import TestbedError
from placement_advisor.files.contract import STRICT, Count, Text, json_text, value_of
from placement_advisor.files.output import cache_folder
from placement_advisor.files.untrusted import MisfitError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_BYTES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """Who has a host; the file of the lock says it."""

    __pydantic_config__: ClassVar = STRICT

    user: Text
    pid: Count
    since: Text
    from_: Text


@contextlib.contextmanager
def sole_use(asked_by: str) -> Iterator[None]:
    """Keep other analyses off this host while the block runs; ``asked_by`` is who has it.

    Raises:
        TestbedError: there is one; the error says whose.
    """
    with contextlib.ExitStack() as stack:
        lock = _opened()
        if lock is not None:
            stack.callback(os.close, lock)
            if _is_taken(lock):
                raise _in_use(os.pread(lock, _MOST_BYTES, 0))
            _write(lock, asked_by)
            stack.callback(os.ftruncate, lock, 0)
        yield


def user_name() -> str:
    """Return the user's name, or number where there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # As in a container that takes any number.
        return str(os.geteuid())


def _opened() -> int | None:
    path = _lock_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    return None


def _lock_file() -> Path:
    name = re.sub(r"[^\w.-]", "_", socket.gethostname())
    network = Path("/proc/self/ns/net").stat().st_ino
    return cache_folder() / "placement-advisor" / "hosts" / f"{name}-{network}.lock"


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # No locks on this file system.
        return False
    return False


def _write(lock: int, asked_by: str) -> None:
    use = _Use(
        user=user_name(),
        pid=os.getpid(),
        since=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        from_=asked_by,
    )
    with contextlib.suppress(OSError):  # The lock is what counts.
        os.ftruncate(lock, 0)
        os.pwrite(lock, json_text(use).encode(errors="replace"), 0)


def _in_use(says: bytes) -> TestbedError:
    hint = "wait until it has ended: a host serves one analysis at a time"
    try:
        use = value_of(_Use, says)
    except MisfitError:  # It has just begun, or just ended.
        return TestbedError("in use by another analysis", hint=hint)
    return TestbedError(
        f"in use by {use.user} (process {use.pid}) since {use.since}, from {use.from_}", hint=hint
    )
