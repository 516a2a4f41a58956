"""Folders that a process keeps to itself and that go when it ends: half an output, scratch.

The owner keeps a file in the folder locked. However it ends, the kernel lets go of the lock, so
that anybody can tell what was left behind, also where process ids say nothing: in another
container, on another host. Whoever makes such a folder first removes those left behind beside it.
Left out: file systems without locks; nothing on them is ever taken for left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Iterator

# How the names of these folders begin.
HIDDEN = ".advisor-"
_LOCK = ".owner"
# With the descriptors of their lock files.
_owned: dict[Path, int] = {}


@contextlib.contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """Give a new folder in another one, for this process alone; it is gone after the block.

    Raises:
        OSError: it cannot be made.
    """
    for folder in parent.glob(f"{HIDDEN}*"):
        remove_if_left_behind(folder)
    folder = Path(tempfile.mkdtemp(prefix=HIDDEN, dir=parent))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        lock = os.open(folder / f"{_LOCK}-new", os.O_CREAT | os.O_RDWR, 0o600)
        stack.callback(os.close, lock)
        with contextlib.suppress(OSError):  # No locks on this file system.
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Only now: nobody may find it unlocked.
            (folder / f"{_LOCK}-new").rename(folder / _LOCK)
        _owned[folder] = lock
        stack.callback(_owned.pop, folder)
        yield folder


def check_owned(folder: Path) -> None:
    """Check that a folder is the one that was made.

    Raises:
        AdvisorError: others have removed it.
    """
    # Another folder of that name may stand there now; of the lock file there is but one.
    if os.fstat(_owned[folder]).st_nlink == 0:
        raise AdvisorError(
            f"{folder.parent}: was removed while it was written to",
            hint="start again, and leave the folder alone until the command ends",
        )


def scratch_folder() -> contextlib.AbstractContextManager[Path]:
    """Give a new folder for what is needed for a while, as `own_folder` does.

    Raises:
        AdvisorError: there is no place for one.
    """
    try:
        return own_folder(Path(tempfile.gettempdir()))
    except FileNotFoundError as error:
        raise AdvisorError(
            f"temporary files cannot be written anywhere: {error.strerror}",
            hint="name a folder for them with TMPDIR",
        ) from None


def owned_folders() -> list[str]:
    """Return the folders that this process has now."""
    return sorted(str(folder.absolute()) for folder in _owned)


def is_left_behind(folder: Path) -> bool:
    """Return whether the owner of a folder has ended without removing it."""
    try:
        # Whatever else may lie there under that name: it is neither followed nor waited for.
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def remove_if_left_behind(folder: Path) -> None:
    """Remove a folder of this user's whose owner has ended."""
    with contextlib.suppress(OSError):
        if folder.stat(follow_symlinks=False).st_uid == os.geteuid() and is_left_behind(folder):
            shutil.rmtree(folder, ignore_errors=True)
