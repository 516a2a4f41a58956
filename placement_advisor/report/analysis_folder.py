"""The folder that an analysis leaves behind: all that is written of it is written here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.analysis import resume
from placement_advisor.analysis.analysis_result import GRAPH, Analysis
from placement_advisor.analysis.analyze import analyze
from placement_advisor.analysis.progress import AnalysisProgress, ProgressListener, Stage
from placement_advisor.files import output
from placement_advisor.files.contract import json_text, like
from placement_advisor.profile.saved_profiles import CLIENT, keep_profiles
from placement_advisor.report.analysis_report import full_text, render_markdown
from placement_advisor.report.html_file import REPORT_FILE, report_html
from placement_advisor.report.pictures.canvas import save
from placement_advisor.report.pictures.result_plots import draw_break_even, draw_comparison
from placement_advisor.report.pictures.timeline_plot import plot_timelines
from placement_advisor.report.statements import verdict_is_split
from placement_advisor.report.tensorboard.logs import write_events, write_profile_runs
from placement_advisor.report.tensorboard.tab_data import Tab
from placement_advisor.results import analysis as published
from placement_advisor.results.candidate import Prediction, RatioAfterRuns, failure_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.testbed.testbed import ProfileFiles
    from placement_advisor.tf.answers import Traced


def analyze_into_folder(options: AnalyzeOptions, watcher: ProgressListener) -> Analysis:
    """Analyse a model and write the reports.

    Raises:
        AdvisorError: anything that the user can fix; nothing is written then.
    """
    progress = AnalysisProgress(watcher, options)
    with output.output_folder(options.folder) as staging:
        analysis = analyze(
            options,
            lambda traced: AnalysisFolder(staging, traced, in_tab=not options.quick),
            progress,
        )
        progress.begin(Stage.REPORT)
        watcher.working("writing reports", 0, 1)
        write_reports(analysis, staging)
        if not options.quick:
            (staging / REPORT_FILE).write_text(report_html(staging), encoding="utf-8")
        analysis = replace(analysis, timings_ns=progress.timings_ns())
        write_analysis(analysis, staging)
    return analysis


class AnalysisFolder:
    """Keeps what an analysis finds in a folder, ``in_tab`` for TensorBoard, too; see `Recorder`."""

    def __init__(self, folder: Path, traced: Traced, *, in_tab: bool) -> None:
        """Write into a folder, about a step."""
        self._folder, self._traced_as = folder, traced.traced_as
        self._tab = Tab(folder / output.LOG_FOLDER, traced.graph) if in_tab else None
        if traced.printed:
            (folder / published.SCRIPT_OUTPUT).write_text(traced.printed, encoding="utf-8")

    def placements(self, graph: OpGraph, cluster: Cluster, placements: Sequence[Placement]) -> None:
        """Write placements, each with the devices, and the hosts that it uses."""
        folder = self._folder / "placements"
        folder.mkdir(exist_ok=True)
        for placement in placements:
            placement.check(graph, cluster.place_names())
            used = set(placement.device_of.values())
            hosts = (host.name for host in cluster.hosts if host.name in used)
            names = (*cluster.device_names(), *hosts)
            file = folder / f"{placement.label}.json"
            placement.save(file, graph, names, self._traced_as)

    def prediction(self, label: str, schedule: Schedule, ratio: PredictedRatio | None) -> None:
        """Write what was predicted for a candidate."""
        folder = self._folder / "predictions"
        folder.mkdir(exist_ok=True)
        text = json_text(Prediction.of(schedule, ratio))
        (folder / f"{label}.json").write_text(text, encoding="utf-8")

    def prediction_after_runs(self, label: str, ratio: PredictedRatio) -> None:
        """Write what was predicted for a candidate then, beside what was before."""
        text = json_text(like(RatioAfterRuns, ratio))
        file = self._folder / "predictions" / f"{label}.after-{ratio.runs}-runs.json"
        file.write_text(text, encoding="utf-8")

    def graph(self, graph: OpGraph) -> None:
        """Write the graph that the bound is about."""
        graph.save(self._folder / GRAPH, traced_as=self._traced_as)

    def rounds(self, kept: resume.ResumeState) -> None:
        """Write what `--resume` goes on from."""
        resume.write_resume_state(kept, self._folder)

    def profile(self, label: str, files: ProfileFiles) -> str:
        """Copy profiles to where TensorBoard looks, all on the command's clock."""
        run = output.profile_run(label, output.MEASURED)
        ahead_ns = {name: files.clocks.ahead_ns(name) for name in files.devices}
        ahead_ns[CLIENT] = files.clocks.ahead_ns(files.clocks.client)
        keep_profiles({**files.devices, CLIENT: files.client}, self._folder / run, ahead_ns)
        return run

    def show(self, analysis: Analysis | resume.AnalysisSnapshot) -> None:
        """Write what the tab shows."""
        if self._tab is not None:
            self._tab.show(analysis)


def write_analysis(analysis: Analysis, folder: Path) -> None:
    """Write the analysis for programs."""
    text = json_text(published.Analysis.of(analysis))
    (folder / published.ANALYSIS).write_text(text, encoding="utf-8")


def write_reports(analysis: Analysis, folder: Path) -> None:
    """Write the reports, the code of a split to make, pictures and what TensorBoard shows.

    Of a quick analysis there is nothing to look at, but text to read.
    """
    (folder / published.FULL_TEXT).write_text(full_text(analysis), encoding="utf-8")
    (folder / "report.md").write_text(render_markdown(analysis), encoding="utf-8")
    if analysis.how is not None and verdict_is_split(analysis):
        code = analysis.how.listing or analysis.how.call
        (folder / published.HOW_TO_SPLIT).write_text(code, encoding="utf-8")
    for candidate in analysis.candidates:
        if candidate.failure is not None and (file := failure_file(candidate)) is not None:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(f"{candidate.failure.in_full}\n", encoding="utf-8")
    if analysis.options.quick:
        return
    plot_timelines(analysis, folder)
    save(draw_comparison(analysis), folder / "comparison.png")
    if analysis.break_even is not None:
        save(draw_break_even(analysis, analysis.break_even), folder / "break-even.png")
    write_profile_runs(analysis, folder)
    write_events(analysis, folder, folder / output.RUNS_FOLDER)
