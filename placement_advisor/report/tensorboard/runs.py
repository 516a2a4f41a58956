"""The analyses under a log directory.

An analysis is a folder that holds `log_files.OVERVIEW`. One that is still running lies in a hidden
folder of its output (`own_folders`); what a killed one left there is no analysis. Links are not
followed, so whatever is found lies under the log directory. Left out: what lies within an analysis
or deeper than analyses do, and, in a log directory of very many folders, what lies behind the first
of them.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.files.foreign_file import content
from placement_advisor.files.log_files import DETAILS, LOG_FOLDER, OVERVIEW
from placement_advisor.files.own_folders import HIDDEN, is_left_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# LOGDIR/<folder of the user>/<model>/<hidden>/tensorboard, and one more.
_DEEPEST = 5
# A listing takes some 20 µs: together less than a click takes to be noticed.
_MOST_FOLDERS = 2_000
# Five times what a candidate takes in a step of 210,000 ops, the largest known.
_MOST_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One analysis. ``name`` is its folder as seen from the log directory."""

    name: str
    folder: Path
    is_running: bool

    @property
    def output(self) -> Path:
        """The folder that the analysis was written into."""
        return self.folder.parent if self.folder.name == LOG_FOLDER else self.folder

    @property
    def changed_ns(self) -> int:
        """When it was written last; 0 if it is gone."""
        try:
            return (self.folder / OVERVIEW).stat().st_mtime_ns
        except OSError:
            return 0

    def overview(self) -> bytes | None:
        """Return what the tab shows first, None if it is gone or no file of an analysis."""
        return _content(self.folder, OVERVIEW)

    def details(self, candidate: str) -> bytes | None:
        """Return what the tab shows of a candidate, None if there is nothing."""
        return _content(self.folder, f"{DETAILS}/{candidate}.json")


def find_runs(logdir: Path) -> Iterator[Run]:
    """Yield the analyses under a log directory, those that lie highest first."""
    for folder in walk(logdir, lambda folder: inside(folder, OVERVIEW) is not None):
        if inside(folder, OVERVIEW) is not None:
            yield _run(logdir, folder)


def walk(top: Path, is_whole: Callable[[Path], bool]) -> Iterator[Path]:
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


def _run(logdir: Path, folder: Path) -> Run:
    output = folder.parent if folder.name == LOG_FOLDER else folder
    is_running = output.name.startswith(HIDDEN)
    if is_running:
        output = output.parent
    # A log directory that is all of one analysis has no name but its own.
    is_below = output != logdir and output.is_relative_to(logdir)
    name = str(output.relative_to(logdir)) if is_below else output.name
    return Run(
        name=f"{name} (running)" if is_running else name, folder=folder, is_running=is_running
    )


def inside(folder: Path, relative: str) -> Path | None:
    """Return a file in a folder, None if there is none, or the way to it leads over a link."""
    path = folder / relative
    try:
        is_plain = path.is_relative_to(folder) and path.resolve() == path and path.is_file()
    except (OSError, ValueError):  # Too long a name; one with a zero byte in it.
        return None
    return path if is_plain else None


def _content(folder: Path, relative: str) -> bytes | None:
    path = inside(folder, relative)
    try:
        return None if path is None else content(path, _MOST_BYTES)
    except OSError:
        return None
