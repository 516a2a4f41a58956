"""Recorded profiles, read in whatever format they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.blame import with_graph, with_sizes
from placement_advisor.profile.chrome_trace_file import read_chrome_trace
from placement_advisor.profile.file_format import FileFormat, text_lines
from placement_advisor.profile.gpu_tables import gpu_trace, summary_totals
from placement_advisor.profile.run_files import recorded_run
from placement_advisor.profile.timeline.read_trace import read_trace
from placement_advisor.profile.totals import ProfileTotals, ReadProfile, totals_of
from placement_advisor.profile.xprof_overview import xprof_overview

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.profile.timeline.device_trace import Trace

_BYTES_PER_MB = 1_000_000
_READING = "reading the profile"


def read_profile(
    path: Path,
    *,
    graph: OpGraph | None,
    ask_xprof: bool,
    working: Callable[[str, int, int], None],
) -> ReadProfile:
    """Read a recorded profile: XSpace files, a Chrome trace, or a table of nvprof or Nsight.

    The ``graph`` of the step says more of its tensors. ``working`` is told what is done, how much
    of it, and of how much.

    Raises:
        AdvisorError: there is none, it is corrupt, or it shows no device at work.
    """

    def read(done_bytes: int, total_bytes: int) -> None:
        working(_READING, done_bytes // _BYTES_PER_MB, total_bytes // _BYTES_PER_MB)

    read(0, 0)
    run = recorded_run(path)
    form = run.form
    if form is FileFormat.XSPACE:
        found: Trace | ProfileTotals = read_trace(path, run.files, read)
    elif form in (FileFormat.CHROME, FileFormat.PYTORCH):
        form, found = read_chrome_trace(run.files[0])
    else:
        found = _of_table(run.files[0], form)
    if not isinstance(found, ProfileTotals):
        found = totals_of(found if graph is None else with_sizes(found, graph))
    profile = ReadProfile(form=form, totals=found, xprof=None, which=run.note)
    if ask_xprof and form is FileFormat.XSPACE:
        working("asking XProf", 0, 1)
        profile = replace(profile, xprof=xprof_overview(run.files))
        if profile.xprof is None:
            notes = (*found.notes, "XProf's overview shows no steps of it")
            profile = replace(profile, totals=replace(found, notes=notes))
    if graph is None:
        return profile
    return replace(profile, totals=with_graph(profile.totals, graph))


def _of_table(path: Path, form: FileFormat) -> Trace | ProfileTotals:
    has_rows_of_events = form in (FileFormat.NVPROF_TRACE, FileFormat.NSIGHT_TRACE)
    try:
        read = gpu_trace if has_rows_of_events else summary_totals
        return read(str(path), form, text_lines(path))
    except OSError as error:
        raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
