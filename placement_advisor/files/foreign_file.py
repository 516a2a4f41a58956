"""Files that others wrote, opened: plain ones alone, of a size that can be read.

A pipe might never open or end, a device never end. Left out: a file that is cut while it is mapped.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

# A hundred times the largest profile known, through which a reader goes in minutes. What is mapped
# takes memory only while it is looked at.
MAX_MAPPED_BYTES = 100_000_000_000


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file to read.

    Raises:
        OSError: it cannot be opened, or is none; ``strerror`` says what is wrong.
    """
    # Opening a pipe would wait for whoever writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(descriptor, "rb")


def content(path: Path, most_bytes: int) -> bytes:
    """Return what a file holds.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger; ``strerror`` says what is wrong.
    """
    with open_plain(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    return data


def mapped(path: Path) -> mmap.mmap | bytes:
    """Return what a file holds, mapped into memory; an empty file has nothing to map.

    Raises:
        OSError: it cannot be read, is no plain file, or is larger than any that is mapped;
            ``strerror`` says what is wrong.
    """
    with open_plain(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > MAX_MAPPED_BYTES:
            raise _too_large(path, MAX_MAPPED_BYTES)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size_bytes else b""


def _too_large(path: Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"more than {most_bytes // 10**6:,} MB", str(path))
