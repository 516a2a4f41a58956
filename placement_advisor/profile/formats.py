"""The formats of recorded profiles, and which of them a path is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.profile.blame import with_graph
from placement_advisor.profile.chrome_trace_file import read_chrome_trace
from placement_advisor.profile.nvprof import nvprof_totals, summary_lines
from placement_advisor.profile.timeline.read_trace import read_trace
from placement_advisor.profile.totals import ReadProfile, totals_of
from placement_advisor.profile.xprof_overview import xprof_overview
from placement_advisor.profile.xspace.run_files import recorded_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph

_BYTES_PER_MB = 1_000_000
_CHROME_TRACES = (".json", ".json.gz")


def read_profile(
    path: Path,
    *,
    graph: OpGraph | None,
    ask_xprof: bool,
    working: Callable[[str, int, int], None],
) -> ReadProfile:
    """Read a recorded profile: XSpace files, a Chrome trace, or what nvprof printed.

    The ``graph`` of the step says more of its tensors. ``working`` is told what is done, how much
    of it, and of how much.

    Raises:
        AdvisorError: there is none, it is corrupt, or it shows no device at work.
    """
    read = _read(path, ask_xprof, working)
    return read if graph is None else replace(read, totals=with_graph(read.totals, graph))


def _read(path: Path, ask_xprof: bool, working: Callable[[str, int, int], None]) -> ReadProfile:

    def read(done_bytes: int, total_bytes: int) -> None:
        working(
            "reading the profile, MB", done_bytes // _BYTES_PER_MB, total_bytes // _BYTES_PER_MB
        )

    read(0, 0)
    is_one = path.exists() and not path.is_dir()
    if is_one and path.name.endswith(_CHROME_TRACES):
        return ReadProfile(totals=totals_of(read_chrome_trace(path)), xprof=None)
    if is_one and (summary := summary_lines(path)) is not None:
        return ReadProfile(totals=nvprof_totals(str(path), summary), xprof=None)
    run = recorded_run(path)
    totals = totals_of(read_trace(path, run.files, read))
    if run.note is not None:
        totals = replace(totals, notes=(run.note, *totals.notes))
    overview = None
    if ask_xprof:
        working("asking XProf", 0, 1)
        overview = xprof_overview(run.files)
        if overview is None:
            totals = replace(totals, notes=(*totals.notes, "XProf's overview shows no steps of it"))
    return ReadProfile(totals=totals, xprof=overview)
