"""Which files a recorded run has: XSpaces, one for each process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.log_files import BOTH, LOG_FOLDER, OVERVIEW, SIMULATED

if TYPE_CHECKING:
    from pathlib import Path

# Beside the profiles of this program's workers lies that of the client, which has the steps.
CLIENT_FILE = "client.xplane.pb"

_PATTERN = "*.xplane.pb"
# TensorFlow names a run after the moment of its recording, which outlives copying, unlike the time
# of the file.
_MOMENT = re.compile(r"\d{4}(?:_\d\d){5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """The files of one run; ``note`` says which it is of several, None where there is one."""

    files: tuple[Path, ...]
    note: str | None = None


def recorded_run(path: Path) -> RecordedRun:
    """Return one run: the file itself, a run's folder, or the newest run below a folder.

    Raises:
        AdvisorError: there is none.
    """
    if not path.exists():
        raise AdvisorError(f"there is no profile {path}")
    if not path.is_dir():
        return RecordedRun(files=(path,))
    own = sorted(path.glob(_PATTERN))
    if own:
        return RecordedRun(files=tuple(own))
    found = sorted(file for file in path.rglob(_PATTERN) if not _is_made_up(file.parent))
    if not found:
        raise AdvisorError(
            f"no {_PATTERN} in {path} or below",
            hint="give the log folder of the TensorBoard callback or of tf.profiler, a run in its "
            "plugins/profile, or one .xplane.pb file",
        )
    newest = max(found, key=_age).parent
    count = len({file.parent for file in found})
    return RecordedRun(
        files=tuple(file for file in found if file.parent == newest),
        note=f"read was {newest.relative_to(path)}, the newest of {count} runs; "
        "give the folder of another to read that"
        if count > 1
        else None,
    )


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
