"""What XProf's overview page says of the same profile, for comparison.

XProf runs in a process of its own, on a copy: it writes files beside the profiles that it opens.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placement_advisor.files.own_folders import scratch_folder
from placement_advisor.processes.orphan_guard import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# It takes several times a file's size in memory.
_LARGEST_BYTES = 200_000_000
_LIMIT_S = 60.0
_NS_PER_MS = 1_000_000
_COLUMNS = {
    "stepTimeMs": "step_ns",
    "deviceComputeTimeMs": "compute_ns",
    "deviceToDeviceTimeMs": "device_to_device_ns",
    "deviceCollectivesTimeMs": "collectives_ns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class XprofOverview:
    """Means over the steps that XProf's overview shows."""

    step_ns: int
    compute_ns: int
    device_to_device_ns: int
    collectives_ns: int


def xprof_overview(files: Sequence[Path]) -> XprofOverview | None:
    """Ask XProf; None if it has no answer, or the files are too large to ask."""
    if sum(file.stat().st_size for file in files) > _LARGEST_BYTES:
        return None
    with scratch_folder() as folder:
        for file in files:
            shutil.copyfile(file, folder / file.name)
        try:
            copies = (str(folder / file.name) for file in files)
            said = subprocess.run(
                [sys.executable, "-P", "-m", __name__, *copies],
                capture_output=True,
                timeout=_LIMIT_S,
                preexec_fn=die_with_parent,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
    return None if said.returncode else _parsed(said.stdout)


def _parsed(answer: bytes) -> XprofOverview | None:
    """Return the means over the rows of the table with step times."""
    try:
        tables: list[dict[str, Any]] = json.loads(answer)
        steps = next(t for t in tables if "steptime_ms_average" in (t.get("p") or {}))
        places = {column["id"]: i for i, column in enumerate(steps["cols"])}
        rows = [[cell["v"] for cell in row["c"]] for row in steps["rows"]]
        means = {
            field: round(_NS_PER_MS * sum(row[places[column]] for row in rows) / len(rows))
            for column, field in _COLUMNS.items()
        }
    except (ValueError, LookupError, TypeError, StopIteration, ZeroDivisionError):
        return None
    return XprofOverview(**means)


def _main(paths: list[str]) -> None:
    from xprof.convert import raw_to_tool_data  # type: ignore[import-untyped]

    answer, _ = raw_to_tool_data.xspace_to_tool_data(paths, "overview_page", {})
    sys.stdout.buffer.write(answer if isinstance(answer, bytes) else answer.encode())


if __name__ == "__main__":
    _main(sys.argv[1:])
