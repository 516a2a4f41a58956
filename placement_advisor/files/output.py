"""What a command leaves behind, a file or a folder: complete, or as it was before.

A folder's content is written into a hidden folder inside and moved up at the end, so the folder may
be a mount point, a link or the current one. What else lies in the folder of an earlier analysis
stays. Of two analyses that end in the same folder at the same moment, one replaces the other. Left
out: a command killed by SIGKILL in the fraction of a millisecond in which the content is moved, and
two hosts that end in the same folder at the same moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from placement_advisor.errors import NO_ROOM, AdvisorError
from placement_advisor.files.log_files import LOG_FOLDER, RUNS_FOLDER
from placement_advisor.files.own_folders import HIDDEN, check_owned, own_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NAME = "file"
# What an analysis writes; an earlier one's is replaced as a whole.
CONTENT = (
    "analysis.json",
    "report.html",
    "report.md",
    "report.txt",
    "how_to_split.py",
    "bound.json",  # of versions before 0.2
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
