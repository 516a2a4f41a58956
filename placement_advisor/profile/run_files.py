"""Which files a recorded run has: XSpaces, one for each process, or one file of another format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.log_files import BOTH, LOG_FOLDER, OVERVIEW, SIMULATED
from placement_advisor.profile.file_format import READ, SUFFIX, FileFormat, format_of

if TYPE_CHECKING:
    from pathlib import Path

# Beside the profiles of this program's workers lies that of the client, which has the steps.
CLIENT_FILE = "client.xplane.pb"

_PATTERN = f"*{SUFFIX}"
# How the names of other profiles end. Folders hold many files; only these are looked into.
_OTHER_NAMES = (".json", ".json.gz", ".csv", ".txt", ".log")
_TRACE_NAME = re.compile(r"\btrace\.json")
# So many files are looked into at most, the newest first.
_MOST_LOOKED_INTO = 1_000
# TensorFlow names a run after the moment of its recording, which outlives copying, unlike the time
# of the file.
_MOMENT = re.compile(r"\d{4}(?:_\d\d){5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """The files of one run; ``note`` says which it is of several, None where there is one.

    A Chrome trace may be anybody's, whatever its ``form``: its reader says whose it is.
    """

    files: tuple[Path, ...]
    form: FileFormat = FileFormat.XSPACE
    note: str | None = None


def recorded_run(path: Path) -> RecordedRun:
    """Return one run: the file itself, a run's folder, or the newest run below a folder.

    Below a folder XSpaces count first: viewers save what they show beside these.

    Raises:
        AdvisorError: there is none, or the file is no profile.
    """
    if not path.exists():
        raise AdvisorError(f"there is no profile {path}")
    if not path.is_dir():
        return RecordedRun(files=(path,), form=format_of(path))
    own = sorted(path.glob(_PATTERN))
    if own:
        return RecordedRun(files=tuple(own))
    found = sorted(file for file in path.rglob(_PATTERN) if not _is_made_up(file.parent))
    if not found:
        return _other_run(path)
    newest = max(found, key=_age).parent
    count = len({file.parent for file in found})
    return RecordedRun(
        files=tuple(file for file in found if file.parent == newest),
        note=f"read was {newest.relative_to(path)}, the newest of {count} runs; "
        "give the folder of another to read that"
        if count > 1
        else None,
    )


def _other_run(folder: Path) -> RecordedRun:
    """Return the newest file below a folder that is a profile of another format."""
    named = [file for file in folder.rglob("*") if file.name.endswith(_OTHER_NAMES)]
    newest = sorted(named, key=lambda file: (-file.stat().st_mtime_ns, str(file)))
    found = [
        (file, form)
        for file in newest[:_MOST_LOOKED_INTO]
        if (form := _form_within(file)) is not None
    ]
    if not found:
        raise AdvisorError(f"{folder} holds no profile, nor does a folder below it", hint=READ)
    (file, form), count = found[0], len(found)
    several = f"read was {file.relative_to(folder)}, the newest of {count} profiles; "
    return RecordedRun(
        files=(file,), form=form, note=f"{several}give another to read that" if count > 1 else None
    )


def _form_within(file: Path) -> FileFormat | None:
    """Return the format of a file that may be anything, None if it is no profile."""
    try:
        form = format_of(file)
    except AdvisorError:
        return None
    # Much else is JSON: what begins with Kineto's facts counts, and what is named as a trace.
    return None if form is FileFormat.CHROME and not _TRACE_NAME.search(file.name) else form


def _is_made_up(run: Path) -> bool:
    """Return whether a run holds a simulated step, which an analysis put beside recorded ones.

    In older analyses it is called ``towers-simulated`` and lies in the log folder.
    """
    if not run.name.endswith((SIMULATED, BOTH)):
        return False
    above = run.resolve().parents[2:5]
    return any((each / logs / OVERVIEW).exists() for each in above for logs in (".", LOG_FOLDER))


def _age(file: Path) -> tuple[str, int, str]:
    run = file.parent.name
    return run if _MOMENT.fullmatch(run) else "", file.stat().st_mtime_ns, str(file)
