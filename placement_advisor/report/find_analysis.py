"""Where a finished analysis lies: the folder itself, or the newest of those below it.

A quick analysis is text alone; whatever else is there, every finished one has
its ``analysis.json``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import read
from placement_advisor.files.foreign_json import MisfitError
from placement_advisor.files.log_files import LOG_FOLDER, OVERVIEW
from placement_advisor.files.own_folders import HIDDEN
from placement_advisor.report.tensorboard.runs import inside, walk
from placement_advisor.results.analysis import ANALYSIS, Analysis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_ANALYSIS = "`advisor analyze MODEL` writes what can be shown"


def read_analysis(path: Path) -> Analysis:
    """Return the finished analysis that a file holds.

    Raises:
        AdvisorError: it cannot be read, or is none that `advisor analyze` could have written.
    """
    try:
        return read(Analysis, path)
    except MisfitError as misfit:
        raise AdvisorError(
            f"{path}: {misfit}",
            hint="`advisor analyze` writes it; one of another version is best written anew",
        ) from None


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
    newest = max(finished_analyses(root), key=_written_ns, default=None)
    if newest is None:
        raise AdvisorError(f"{folder}: holds no finished analysis", hint=NO_ANALYSIS)
    return folder / newest.relative_to(root)


def finished_analyses(root: Path) -> Iterator[Path]:
    """Yield the folders of finished analyses under a resolved one, those that lie highest first."""

    def is_whole(folder: Path) -> bool:
        # What a log folder holds is about the analysis around it.
        has_ended = inside(folder, ANALYSIS) is not None
        return has_ended or folder.name.startswith(HIDDEN) or inside(folder, OVERVIEW) is not None

    for folder in walk(root, is_whole):
        if inside(folder, ANALYSIS) is not None and not folder.name.startswith(HIDDEN):
            yield folder


def is_text_alone(folder: Path) -> bool:
    """Return whether the finished analysis in a folder has nothing that could be looked at."""
    log = folder / LOG_FOLDER
    return (folder / ANALYSIS).is_file() and not any(
        (place / OVERVIEW).exists() for place in (log, folder)
    )


def nothing_to_see(folder: Path, *, shown: str) -> AdvisorError:
    """Return what to say where an analysis of text alone is asked for what it lacks."""
    return AdvisorError(
        f"{folder}: text alone, as quick analyses are: {shown}",
        hint=f"advisor show {shlex.quote(str(folder))} prints it; `advisor analyze MODEL` without "
        "--quick writes all of it, pictures too",
    )


def _written_ns(folder: Path) -> int:
    """Return when an analysis ended; 0 if it is gone."""
    try:
        return (folder / ANALYSIS).stat().st_mtime_ns
    except OSError:
        return 0
