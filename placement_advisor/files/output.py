"""Where outputs go: a file or folder is complete or as it was; temporary and cache folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import NO_ROOM, AdvisorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# What the tab Placement shows.
LOG_FOLDER = "tensorboard"
# What the other tabs show: a folder for each candidate.
RUNS_FOLDER = "runs"
# Which profiles there may be of a candidate: recorded ones, a simulated step, both side by side.
MEASURED, SIMULATED, BOTH = "measured", "simulated", "both"
# In `LOG_FOLDER`: what is shown first.
OVERVIEW = "plugins/placement/analysis.json"
# There too: a file for each candidate, with its timelines and copies.
DETAILS = "plugins/placement/candidates"


def profile_run(candidate: str, which: str) -> str:
    """Return the folder, of the output, with profiles of a candidate, one for each process."""
    return f"{RUNS_FOLDER}/{candidate}/plugins/profile/{which}"


# As a folder it holds nothing and takes nothing.
NOWHERE = Path(os.devnull)


def cache_folder() -> Path:
    """Return the user's cache folder; `NOWHERE` without a home, as in a container's user id.

    A relative path is none: it would lead to the current folder, which may be a stranger's.
    """
    at_home = os.path.expanduser("~/.cache")  # noqa: PTH111 - Path's raises without a home
    folder = Path(os.environ.get("XDG_CACHE_HOME") or at_home)
    return folder if folder.is_absolute() else NOWHERE


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


_NAME = "file"
# What an analysis writes; an earlier one's is replaced as a whole.
CONTENT = (
    "analysis.json",
    "report.html",
    "report.md",
    "report.txt",
    "how_to_split.py",
    "script-output.txt",
    "failures",
    "graph.json.gz",
    "rounds.json",
    "timeline.png",
    "timelines",
    "break-even.png",
    "comparison.png",
    "placements",
    "predictions",
    LOG_FOLDER,
    RUNS_FOLDER,
)
_HINT = "choose another folder with -o"


@contextlib.contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Give a place to write to; its content moves to ``folder`` if the block ends without error.

    Raises:
        AdvisorError: the folder cannot be written, holds something that is not ours, or its disk
            is full or gone before the block ends.
    """
    made: list[Path] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_empty, made)
        with _told(folder, _HINT):
            _refuse_files(folder)
            made += [part for part in (folder, *folder.parents) if not part.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            with _alone_in(folder):
                _refuse_foreign(folder)
            staging = stack.enter_context(own_folder(folder))
        try:
            yield staging
        except OSError as error:
            if error.errno not in NO_ROOM and staging.exists():
                raise
            with _told(folder, _HINT):
                raise
        check_owned(staging)
        with _told(folder, _HINT), _alone_in(folder):
            _publish(staging, folder)


@contextlib.contextmanager
def _told(path: Path, hint: str, *, at: str = "") -> Iterator[None]:
    """Have what the system refuses said as an error that the user can mend."""
    try:
        yield
    except OSError as error:
        message = f"{path}: cannot be written: {at}{error.strerror}"
        raise AdvisorError(message, hint=hint) from None


def _refuse_files(folder: Path) -> None:
    for part in (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise AdvisorError(f"{folder}: cannot be written: {part} is a file", hint=_HINT)


def _refuse_foreign(folder: Path) -> None:
    if (folder / "analysis.json").exists():
        return
    if any(not entry.name.startswith(HIDDEN) for entry in folder.iterdir()):
        raise AdvisorError(
            f"{folder}: not empty, and not the output of an earlier analysis", hint=_HINT
        )


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep others from publishing into a folder meanwhile, where its file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _publish(staging: Path, folder: Path) -> None:
    """Move the new content in place of the old, by renaming alone, so that it takes no time.

    What tells that an analysis is there goes first and comes last. If moving is interrupted, all
    is as it was before.
    """
    old = staging / "old"
    old.mkdir()
    new = [name for name in CONTENT if (staging / name).exists()]
    try:
        for name in CONTENT:
            if (folder / name).exists():
                (folder / name).rename(old / name)
        for name in reversed(new):
            (staging / name).rename(folder / name)
    except BaseException:
        for name in new:
            if not (staging / name).exists():
                (folder / name).rename(staging / name)
        for name in reversed(CONTENT):
            if (old / name).exists():
                (old / name).rename(folder / name)
        raise


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # Not empty, or never made.
            folder.rmdir()


@contextlib.contextmanager
def output_file(
    path: Path, *, option: str, read: Path | None = None
) -> Iterator[Callable[[Callable[[Path], None]], None]]:
    """Claim a place for a file; give what puts one there, made by the function that it is given.

    ``option`` is where the user can choose another path, ``read`` what the command reads,
    if anything. Left out: who else writes there meanwhile.

    Raises:
        AdvisorError: the file cannot be written, or is no plain file, or is the one that is read.
    """
    hint = f"choose another file with {option}"
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no plain file"
        raise AdvisorError(f"{path}: cannot be written: it is {what}", hint=hint)
    if read is not None and path.exists() and read.exists() and path.samefile(read):
        raise AdvisorError(f"{path}: is an input of this command and is not overwritten", hint=hint)
    with contextlib.ExitStack() as stack:
        with _told(path, hint, at=f"{path.parent}: "):
            staging = stack.enter_context(own_folder(path.parent))

        def put(make: Callable[[Path], None]) -> None:
            with _told(path, hint):
                make(staging / _NAME)
                (staging / _NAME).replace(path)

        yield put


def holding(text: str) -> Callable[[Path], None]:
    """Return what makes a file of that text; half a character, as a path may hold, is replaced."""

    def make(path: Path) -> None:
        path.write_text(text, encoding="utf-8", errors="replace")

    return make
