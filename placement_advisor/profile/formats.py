"""The formats of recorded profiles, and which of them a path is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.profile.blame import with_graph, with_sizes
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
    from placement_advisor.profile.timeline.device_trace import Trace
    from placement_advisor.profile.totals import ProfileTotals

_BYTES_PER_MB = 1_000_000
_READING = "reading the profile"
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
    read = _read(path, graph, ask_xprof, working)
    return read if graph is None else replace(read, totals=with_graph(read.totals, graph))


def _read(
    path: Path, graph: OpGraph | None, ask_xprof: bool, working: Callable[[str, int, int], None]
) -> ReadProfile:

    def totals(trace: Trace) -> ProfileTotals:
        return totals_of(trace if graph is None else with_sizes(trace, graph))

    def read(done_bytes: int, total_bytes: int) -> None:
        working(_READING, done_bytes // _BYTES_PER_MB, total_bytes // _BYTES_PER_MB)

    read(0, 0)
    is_one = path.exists() and not path.is_dir()
    if is_one and path.name.endswith(_CHROME_TRACES):
        return ReadProfile(totals=totals(read_chrome_trace(path)), xprof=None)
    if is_one and (summary := summary_lines(path)) is not None:
        return ReadProfile(totals=nvprof_totals(str(path), summary), xprof=None)
    run = recorded_run(path)
    found = ReadProfile(
        totals=totals(read_trace(path, run.files, read)), xprof=None, which=run.note
    )
    if not ask_xprof:
        return found
    working("asking XProf", 0, 1)
    overview = xprof_overview(run.files)
    if overview is None:
        notes = (*found.totals.notes, "XProf's overview shows no steps of it")
        return replace(found, totals=replace(found.totals, notes=notes))
    return replace(found, xprof=overview)
