"""Which files a recorded run has: XSpaces, one for each process."""

from __future__ import annotations

import re
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


def profile_files(path: Path) -> tuple[Path, ...]:
    """Return the files of one run: the file itself, those of a run folder, or of the newest run.

    Raises:
        AdvisorError: there is none.
    """
    if not path.exists():
        raise AdvisorError(f"there is no profile {path}")
    if not path.is_dir():
        return (path,)
    own = sorted(path.glob(_PATTERN))
    if own:
        return tuple(own)
    found = sorted(file for file in path.rglob(_PATTERN) if not _is_made_up(file.parent))
    if not found:
        raise AdvisorError(
            f"no {_PATTERN} in {path} or below",
            hint="give the log folder of the TensorBoard callback or of tf.profiler, a run in its "
            "plugins/profile, or one .xplane.pb file",
        )
    newest = max(found, key=_age).parent
    return tuple(file for file in found if file.parent == newest)


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
