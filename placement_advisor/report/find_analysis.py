"""Finds the analyses under a folder: finished ones, and those that TensorBoard can show.

A finished analysis is a folder with an ``analysis.json``; the tab Placement shows every
folder that holds `log_files.OVERVIEW`, also that of a running analysis, which is hidden
(`own_folders`). Symbolic links are not followed, so that everything found lies under the
folder that was given. The search ends at the depth at which analyses lie, and after
`_MOST_FOLDERS` folders.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import read
from placement_advisor.files.output import DETAILS, HIDDEN, LOG_FOLDER, OVERVIEW, is_left_behind
from placement_advisor.files.untrusted import MisfitError, read_plain
from placement_advisor.results.analysis import ANALYSIS, Analysis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# LOGDIR/<folder of the user>/<model>/<hidden>/tensorboard, and one more.
_DEEPEST = 5
# A listing takes some 20 µs: together less than a click takes to be noticed.
_MOST_FOLDERS = 2_000
# Five times what a candidate takes in a step of 210,000 ops, the largest known.
_MOST_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """One analysis, in a folder of the log directory."""

    logdir: Path
    folder: Path

    @property
    def output(self) -> Path:
        """The folder that the analysis was written into."""
        return self.folder.parent if self.folder.name == LOG_FOLDER else self.folder

    @property
    def is_running(self) -> bool:
        """Whether it goes on: its folder is hidden until then."""
        return self.output.name.startswith(HIDDEN)

    @property
    def name(self) -> str:
        """Its folder, as seen from the log directory."""
        output = self.output.parent if self.is_running else self.output
        # A log directory that is all of one analysis has no name but its own.
        is_below = output != self.logdir and output.is_relative_to(self.logdir)
        name = str(output.relative_to(self.logdir)) if is_below else output.name
        return f"{name} (running)" if self.is_running else name

    @property
    def changed_ns(self) -> int:
        """When it was written last; 0 if it is gone."""
        return _written_ns(self.folder / OVERVIEW)

    def overview(self) -> bytes | None:
        """Return what the tab shows first, None if it is gone or no file of an analysis."""
        return _content(self.folder, OVERVIEW)

    def details(self, candidate: str) -> bytes | None:
        """Return what the tab shows of a candidate, None if there is nothing."""
        return _content(self.folder, f"{DETAILS}/{candidate}.json")


def find_runs(logdir: Path) -> Iterator[Run]:
    """Yield the analyses under a log directory, those that lie highest first."""
    for folder in walk_folders(logdir, lambda folder: file_inside(folder, OVERVIEW) is not None):
        if file_inside(folder, OVERVIEW) is not None:
            yield Run(logdir, folder)


def walk_folders(top: Path, is_whole: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a folder and those below it, as deep as analyses lie, but none within what is whole."""
    waiting = deque([(top, 0)])
    seen = 0
    while waiting and seen < _MOST_FOLDERS:
        folder, depth = waiting.popleft()
        seen += 1
        if folder.name.startswith(HIDDEN) and is_left_behind(folder):
            continue
        yield folder
        if depth < _DEEPEST and not is_whole(folder):
            waiting += [(inner, depth + 1) for inner in _folders(folder)]


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            inner = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(inner)


def file_inside(folder: Path, relative: str) -> Path | None:
    """Return a file in a folder, None if there is none, or the way to it leads over a link."""
    path = folder / relative
    try:
        is_plain = path.is_relative_to(folder) and path.resolve() == path and path.is_file()
    except (OSError, ValueError):  # Too long a name; one with a zero byte in it.
        return None
    return path if is_plain else None


def _content(folder: Path, relative: str) -> bytes | None:
    path = file_inside(folder, relative)
    try:
        return None if path is None else read_plain(path, _MOST_BYTES)
    except OSError:
        return None


NO_ANALYSIS = "`advisor analyze MODEL` writes what can be shown"


def read_analysis(path: Path) -> Analysis:
    """Return the finished analysis that a file holds.

    Raises:
        AdvisorError: it cannot be read, or is none that `advisor analyze` could have written.
    """
    with refusing(path, "`advisor analyze` writes it; if another version wrote it, run that again"):
        return read(Analysis, path)


@contextmanager
def refusing(path: Path, hint: str) -> Iterator[None]:
    """Have what a file should not hold be one error that names it.

    Raises:
        AdvisorError: the block reads such a thing.
    """
    try:
        yield
    except MisfitError as misfit:
        raise AdvisorError(f"{path}: {misfit}", hint=hint) from None


def find_analysis(folder: Path) -> Path:
    """Return the folder of a finished analysis: the given one, or the newest that it holds.

    Raises:
        AdvisorError: there is none.
    """
    if not folder.is_dir():
        raise AdvisorError(f"{folder}: no such folder", hint=NO_ANALYSIS)
    if (folder / ANALYSIS).exists():
        return folder
    root = folder.resolve()
    found = finished_analyses(root)
    newest = max(found, key=lambda folder: _written_ns(folder / ANALYSIS), default=None)
    if newest is None:
        raise AdvisorError(f"{folder}: holds no finished analysis", hint=NO_ANALYSIS)
    return folder / newest.relative_to(root)


def finished_analyses(root: Path) -> Iterator[Path]:
    """Yield the folders of finished analyses under a resolved one, those that lie highest first."""

    def is_whole(folder: Path) -> bool:
        # What a log folder holds is about the analysis around it.
        has_ended = file_inside(folder, ANALYSIS) is not None
        return (
            has_ended or folder.name.startswith(HIDDEN) or file_inside(folder, OVERVIEW) is not None
        )

    for folder in walk_folders(root, is_whole):
        if file_inside(folder, ANALYSIS) is not None and not folder.name.startswith(HIDDEN):
            yield folder


def is_text_only(folder: Path) -> bool:
    """Return whether the finished analysis in a folder has nothing that could be looked at."""
    log = folder / LOG_FOLDER
    return (folder / ANALYSIS).is_file() and not any(
        (place / OVERVIEW).exists() for place in (log, folder)
    )


def text_only_error(folder: Path, *, shown: str) -> AdvisorError:
    """Return what to say where an analysis of text alone is asked for what it lacks."""
    return AdvisorError(
        f"{folder}: text alone, as quick analyses are: {shown}",
        hint=f"advisor show {shlex.quote(str(folder))} prints it; `advisor analyze MODEL` without "
        "--quick writes all of it, pictures too",
    )


def _written_ns(file: Path) -> int:
    """Return when a file was written last; 0 if it is gone."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
