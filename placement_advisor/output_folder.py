"""The folder that an analysis leaves behind: complete, or as it was before.

Everything is written into a hidden folder inside and moved up at the end, so the folder may be a
mount point, a link or the current one. What else lies in the folder of an earlier analysis stays.
Left out: two analyses that end in the same folder at the same moment.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What an analysis writes; an earlier one's is replaced as a whole.
_CONTENT = (
    "analysis.json",
    "report.md",
    "how_to_split.py",
    "bound.json",
    "graph.json.gz",
    "timeline.png",
    "break-even.png",
    "comparison.png",
    "placements",
    "predictions",
    "tensorboard",
)
# How the folder begins in which an analysis lies until it is complete.
HIDDEN = ".advisor-"
_HINT = "choose another folder with -o"


@contextlib.contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Give a place to write to; its content moves to ``folder`` if the block ends without error.

    Raises:
        AdvisorError: the folder cannot be written, or holds something that is not ours.
    """
    made: list[Path] = []
    try:
        _refuse_foreign(folder)
        made += [part for part in (folder, *folder.parents) if not part.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=HIDDEN, dir=folder))
    except OSError as error:
        _remove_empty(made)
        raise AdvisorError(f"{folder}: cannot be written: {error.strerror}", hint=_HINT) from None
    try:
        yield staging
        _publish(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        _remove_empty(made)


def _refuse_foreign(folder: Path) -> None:
    for part in (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise AdvisorError(f"{folder}: cannot be written: {part} is a file", hint=_HINT)
    if not folder.exists() or (folder / "analysis.json").exists():
        return
    if any(not entry.name.startswith(HIDDEN) for entry in folder.iterdir()):
        raise AdvisorError(
            f"{folder}: not empty, and not the output of an earlier analysis", hint=_HINT
        )


def _publish(staging: Path, folder: Path) -> None:
    """Move the new content in place of the old, by renaming alone, so that it takes no time."""
    old = staging / "old"
    old.mkdir()
    for name in _CONTENT:
        if (folder / name).exists():
            (folder / name).rename(old / name)
    for name in _CONTENT:
        if (staging / name).exists():
            (staging / name).rename(folder / name)


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # Not empty, or never made.
            folder.rmdir()
