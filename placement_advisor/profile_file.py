"""Wires `advisor profile`: a recorded profile -> what it says, and what XProf says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.profile.read_trace import read_trace
from placement_advisor.profile.recorded_files import profile_files
from placement_advisor.profile.totals import ReadProfile, totals_of
from placement_advisor.profile.xprof_overview import xprof_overview

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.trial import Watcher

_BYTES_PER_MB = 1_000_000


def profile_file(path: Path, *, ask_xprof: bool, watcher: Watcher) -> ReadProfile:
    """Read a recorded profile.

    Raises:
        AdvisorError: there is none, it is corrupt, or it shows no device at work.
    """

    def read(done_bytes: int, total_bytes: int) -> None:
        watcher.working(
            "reading the profile, MB", done_bytes // _BYTES_PER_MB, total_bytes // _BYTES_PER_MB
        )

    read(0, 0)
    totals = totals_of(read_trace(path, read))
    overview = None
    if ask_xprof:
        watcher.working("asking XProf", 0, 1)
        overview = xprof_overview(profile_files(path))
        if overview is None:
            totals = replace(totals, notes=(*totals.notes, "XProf's overview shows no steps of it"))
    return ReadProfile(totals=totals, xprof=overview)
