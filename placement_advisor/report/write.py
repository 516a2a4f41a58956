"""The files that an analysis leaves behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from placement_advisor.log_files import LOG_FOLDER, PROFILE_RUNS
from placement_advisor.report.analysis_json import analysis_as_json, predicted_as_json
from placement_advisor.report.break_even_plot import plot_break_even
from placement_advisor.report.event_files import write_events
from placement_advisor.report.markdown import render_markdown
from placement_advisor.report.plots import plot_comparison, plot_timeline
from placement_advisor.report.profile_runs import write_profile_runs
from placement_advisor.report.tables import HOW_TO_SPLIT, verdict_is_split

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis import Analysis
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio


def write_prediction(schedule: Schedule, ratio: PredictedRatio | None, path: Path) -> None:
    """Write what was predicted for a candidate; it stays as it is, whatever is measured later."""
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(predicted_as_json(schedule, ratio), indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def write_analysis(analysis: Analysis, folder: Path) -> None:
    """Write analysis.json."""
    text = json.dumps(analysis_as_json(analysis), indent=2, ensure_ascii=False)
    (folder / "analysis.json").write_text(text + "\n", encoding="utf-8")


def write_reports(analysis: Analysis, folder: Path) -> None:
    """Write the report, its pictures, what TensorBoard shows, and the code of a split to make."""
    (folder / "report.md").write_text(render_markdown(analysis), encoding="utf-8")
    if analysis.how is not None and verdict_is_split(analysis):
        code = analysis.how.listing or analysis.how.call
        (folder / HOW_TO_SPLIT).write_text(code, encoding="utf-8")
    plot_timeline(analysis, folder / "timeline.png")
    plot_comparison(analysis, folder / "comparison.png")
    if analysis.break_even is not None:
        plot_break_even(analysis, analysis.break_even, folder / "break-even.png")
    log = folder / LOG_FOLDER
    for candidate in analysis.candidates:
        write_profile_runs(candidate, log / PROFILE_RUNS)
    write_events(analysis, folder, log)
