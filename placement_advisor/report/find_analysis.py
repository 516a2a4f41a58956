"""Where a finished analysis lies: the folder itself, or the newest of those below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.report.analysis.tables import ANALYSIS
from placement_advisor.report.tensorboard.runs import find_runs

if TYPE_CHECKING:
    from pathlib import Path

_HINT = "`advisor analyze MODEL` writes what can be shown"


def find_analysis(folder: Path) -> Path:
    """Return the folder of a finished analysis: the given one, or the newest that it holds.

    Raises:
        AdvisorError: there is none.
    """
    if not folder.is_dir():
        raise AdvisorError(f"{folder}: no such folder", hint=_HINT)
    if (folder / ANALYSIS).exists():
        return folder
    root = folder.resolve()
    runs = [run for run in find_runs(root) if (run.output / ANALYSIS).is_file()]
    if not runs:
        raise AdvisorError(f"{folder}: holds no finished analysis", hint=_HINT)
    newest = max(runs, key=lambda run: run.changed_ns)
    return folder / newest.output.relative_to(root)
