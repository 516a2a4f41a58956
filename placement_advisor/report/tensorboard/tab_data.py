"""What the tab Placement shows: written again and again while an analysis runs, and read back.

One file for all candidates (`Overview`), small enough to be written after every round, and one for
each (`Details`), which grows with its step. They hold text as it is shown; timelines and layers
alone are drawn from numbers, integer nanoseconds and bytes per step. A reader finds each file
complete, as it was or as it is. Numbers in what is read point at something that is there, whoever
wrote it: a page can show it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import AfterValidator

from placement_advisor import units
from placement_advisor.analysis import analysis_result as found
from placement_advisor.analysis.findings.rules import finding_page
from placement_advisor.analysis.reasons import speedup_of
from placement_advisor.analysis.resume import AnalysisSnapshot
from placement_advisor.defaults import BASELINE
from placement_advisor.files.contract import STRICT, ByName, Count, Rows, plain, read
from placement_advisor.files.output import DETAILS, OVERVIEW
from placement_advisor.files.untrusted import MisfitError, shown
from placement_advisor.measurement.measurement import FailureKind, StepProfile
from placement_advisor.report import analysis_report, statements
from placement_advisor.report.document import NOTHING
from placement_advisor.report.find_analysis import refusing
from placement_advisor.report.pictures import layer_layout, result_plots, timeline_plot
from placement_advisor.report.pictures.layer_layout import Text, check_below
from placement_advisor.results.analysis import ScalingRow, scaling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator import schedule as schedules
    from placement_advisor.simulator.break_even import BreakEven, Sweep, SweepPoint

SCHEMA_VERSION = 3
# More are a list, and no advice.
_MOST_ACTIONS = 3
# Nobody looks through more of those that cross.
_MOST_TENSORS = 500
_CROSSING, _TENSORS = "Tensors that cross as predicted", ("Tensor", "Way", "Bytes", "Time")
_RAN = "What ran in the profiled steps, copies in bold"
_SCALING = ("", "Candidate", "Devices", "Samples a step", "Predicted (simulated)", "Measured")
_SWEEP = ("Split", "Speed-up", "")
_OWN_STEP = "Your own step, placed so, on its own variables (inputs: those that were analysed):"


def _file_name(name: str) -> str:
    if Path(name).name != name or "\0" in name:
        raise ValueError(f"{shown(name)} is not the name of a candidate")
    return name


FileName = Annotated[Text, AfterValidator(_file_name)]
Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of each row is its head."""

    caption: Text
    head: Rows[Text]
    rows: Rows[Rows[Text]]
    bold: Rows[Count] = ()
    """Numbers of rows."""
    count: Count | None = None
    """Of rows in all, where heads of rows are code and the first rows are shown until asked."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The best split's speed-up along an axis, both logarithmic."""

    title: Text
    level: Positive
    """The speed-up above which a split wins."""
    points: Annotated[Rows[tuple[Positive, Positive, Text]], MinLen(1)]
    """Values with speed-ups, and with their units."""
    here: tuple[Positive, Text]
    wins: tuple[Positive, Text] | None
    """Where a split begins to win."""

    @classmethod
    def of(cls, sweep: Sweep, worthwhile_ratio: float) -> Chart:
        """Return it as it is drawn."""
        speedup, axis, wins = result_plots.drawn_speedup, sweep.axis, sweep.wins_from
        points = (
            (each.value, speedup(each.best.ratio), analysis_report.value_text(axis, each.value))
            for each in sweep.points
        )

        def marked(point: SweepPoint, word: str) -> tuple[float, str]:
            return point.value, f"{word} {analysis_report.value_text(axis, point.value)}"

        return cls(
            result_plots.AXIS_TITLES[axis],
            speedup(worthwhile_ratio),
            tuple(points),
            marked(sweep.here, "here"),
            marked(wins, result_plots.wins_words(axis)) if wins else None,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a section: text, or else items, code, a table, Markdown or charts."""

    text: Text = ""
    is_hint: bool = False
    lead: Text = ""
    """Bold, before the text."""
    items: Rows[Text] | None = None
    code: Text | None = None
    table: Table | None = None
    markdown: Text | None = None
    charts: Rows[Chart] | None = None
    folded: Text | None = None
    """The line that unfolds it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A finding, or a section that only some analyses have."""

    title: Text
    parts: Rows[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A row of the table of candidates."""

    name: FileName
    rationale: Text
    failure: Text | None
    is_applicable: bool
    samples: Rows[Count] | None
    """Of each replica, where the batch is split."""
    figures: Rows[tuple[Text, Text]]
    """Each as predicted and as measured, under its column; none where it failed."""
    after_runs: Text | None
    """The speed-up as predicted when others had run and it had not."""
    bars: ByName[ByName[Count]]
    """What a step is made of on the device that computes longest, simulated and measured; ns."""
    peak_memory: Rows[tuple[Text, Count]]
    """Bytes by device, as predicted."""
    details: Count
    """Grows with what there is to show of it; 0 for nothing."""

    @classmethod
    def of(cls, candidate: found.Candidate, devices: Sequence[str]) -> Candidate:
        """Return it as it is shown."""
        predicted, failure = candidate.predicted, candidate.failure
        after, later = candidate.ratio_after_runs, statements.range_after_runs(candidate)
        peaks = predicted.peak_memory_bytes if predicted else {}
        after_runs = None
        if after and later:
            after_runs = f"after {after.runs} runs: {statements.with_range(later.median, later)}"
        return cls(
            name=candidate.name,
            rationale=candidate.rationale,
            failure=statements.failure_text(candidate) if failure else None,
            is_applicable=failure is None or failure.kind is not FailureKind.NOT_APPLICABLE,
            samples=candidate.samples,
            figures=_figures(candidate),
            after_runs=after_runs,
            bars={
                basis: {part: round(time_ns) for part, time_ns in parts.items()}
                for basis, parts in result_plots.step_parts(candidate, devices).items()
            },
            peak_memory=tuple(peaks.items()),
            details=int(predicted is not None) + 2 * int(candidate.profile is not None),
        )


def _figures(candidate: found.Candidate) -> tuple[tuple[str, str], ...]:
    predicted, profile = candidate.predicted, candidate.profile
    timed_ns = statements.timed_ns(candidate)
    if candidate.failure and not predicted and timed_ns is None:
        return ()
    ratio = candidate.predicted_ratio
    times = 1 / ratio.ratio if ratio and ratio.ratio else None
    speedup = candidate.comparison and candidate.comparison.speedup
    ran = profile if timed_ns is not None else None
    shown = zip(statements.figure_cells(predicted), statements.figure_cells(ran), strict=True)
    step = (
        units.format_ns(predicted.step_ns) if predicted else NOTHING,
        units.format_ns(timed_ns) if timed_ns is not None else NOTHING,
    )
    foreseen = statements.with_range(times, statements.predicted_range(candidate))
    measured = statements.with_range(speedup.median, speedup) if speedup else NOTHING
    return (step, *shown, (foreseen, measured))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is shown first of an analysis; what has a default is known once it is complete."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(SCHEMA_VERSION), Le(SCHEMA_VERSION)]
    name: Text
    """Of the model."""
    facts: Rows[tuple[Text, Text]]
    """What the analysis is of, under labels."""
    headline: Text
    verdict: Rows[Part]
    devices: Rows[Text]
    hosts: ByName[Rows[Text]]
    """Devices of each, none where there is one machine."""
    columns: Rows[Text]
    """Titles of the figures of candidates."""
    candidates: Rows[Candidate]
    graph: layer_layout.Graph
    no_findings: Text
    """What is to be said where there are no findings."""
    sections: Rows[Section]
    answer: Text = ""
    """The verdict in a short sentence."""
    actions: Rows[Text] = ()
    """What to do now."""
    chosen: Text | None = None
    """Candidate that the verdict is about."""
    warnings: Rows[Text] = ()
    as_is: tuple[Text, Text] | None = None
    """Name and time of the user's own step, which is no candidate."""
    notes: Rows[Text] = ()
    """Below the candidates."""
    findings: Rows[Section] = ()

    def __post_init__(self) -> None:
        if len({each.name for each in self.candidates}) < len(self.candidates):
            raise MisfitError("two of the same name", "candidates")
        if any(len(each.figures) not in (0, len(self.columns)) for each in self.candidates):
            raise MisfitError("not a figure for each column", "candidates")

    @classmethod
    def of(
        cls, analysis: found.Analysis | AnalysisSnapshot, layers: layer_layout.LayerMap
    ) -> Overview:
        """Return what is shown of an analysis, be it one that goes on."""
        if isinstance(analysis, AnalysisSnapshot):
            return replace(cls._so_far(analysis, layers), headline=f"Running: {analysis.doing}")
        before = cls._so_far(analysis, layers)
        answer, as_is = analysis.recommendation, statements.as_is_interval(analysis)
        reasons = Part(items=answer.reasons, folded="Why")
        others = Part(items=answer.others, folded="The other candidates")
        versions = f"{analysis.advisor_version}, TensorFlow {analysis.tensorflow_version}"
        own = f"{statements.AS_IS}: your own step, unmodified, with all of the machine."
        notes = (
            own if as_is else None,
            statements.input_line(analysis),
            statements.analysis_error(analysis),
        )
        how = [_how(analysis, analysis.how)] if analysis.how else []
        even = [_break_even(analysis.break_even)] if analysis.break_even else []
        return replace(
            before,
            facts=(*before.facts, ("Version", versions)),
            answer=_answer(answer),
            actions=tuple(_actions(analysis))[:_MOST_ACTIONS],
            headline=answer.headline,
            chosen=answer.candidate,
            verdict=(*before.verdict, reasons, *[others] * bool(answer.others)),
            warnings=analysis.warnings,
            as_is=(statements.AS_IS, units.format_ns(round(as_is.median))) if as_is else None,
            notes=tuple(filter(None, notes)),
            findings=tuple(map(_finding, analysis.findings)),
            no_findings=f"{statements.no_findings_text(analysis)}.",
            sections=(*even, *how, *before.sections),
        )

    @classmethod
    def _so_far(
        cls, snapshot: found.Analysis | AnalysisSnapshot, layers: layer_layout.LayerMap
    ) -> Overview:
        testbed, rows = snapshot.testbed, scaling(snapshot.candidates)
        hosts: dict[str, tuple[str, ...]] = {}
        for device, host in (testbed.host_of if testbed else {}).items():
            hosts[host] = (*hosts.get(host, ()), device)
        devices = testbed.cluster.device_names() if testbed else ()
        left_out = statements.left_out_text(snapshot.model.left_out)
        return cls(
            schema_version=SCHEMA_VERSION,
            name=snapshot.title,
            headline="",
            facts=tuple(_facts(snapshot.model, testbed)),
            verdict=(Part(left_out, is_hint=True),) if left_out else (),
            devices=testbed.cluster.place_names() if testbed else (),
            hosts=hosts,
            columns=("Step", *statements.FIGURES, "Speed-up"),
            candidates=tuple(
                Candidate.of(each, devices) for each in sorted(snapshot.candidates, key=_rank)
            ),
            graph=layers.graph,
            no_findings="Not yet known.",
            sections=(_scaling(rows, statements.speedups(snapshot.candidates)),) if rows else (),
        )


def _facts(model: found.Model, testbed: found.TestbedSummary | None) -> Iterator[tuple[str, str]]:
    batch = "" if model.batch_size is None else f", batch of {model.batch_size}"
    size = f"{model.ops} ops, {units.format_bytes(model.parameter_bytes)} of parameters"
    yield "Model", f"{model.path}, {size}"
    yield "Step", f"{model.mode}{batch}"
    if testbed:
        yield "Machine", testbed.description


def _rank(candidate: found.Candidate) -> tuple[bool, float]:
    """Sort the fastest first, by ratios within rounds; what was not measured stands below."""
    if candidate.comparison is not None:
        return False, candidate.comparison.ratio.median
    if statements.did_run(candidate):
        return candidate.name != BASELINE, 1.0
    return True, candidate.predicted.step_ns if candidate.predicted else math.inf


def _answer(answer: found.Recommendation) -> str:
    """Return the verdict for somebody who reads nothing else."""
    name, speedup = answer.candidate, answer.speedup
    if name is None or speedup is None:
        return answer.answer[:1].upper() + answer.answer[1:]
    if answer.verdict is found.AdviceVerdict.STAY_SINGLE:
        longer = statements.longer_text(1 / speedup.median).replace("longer", "slower")
        slower = longer.replace("shorter", "faster").replace("as long", "as fast")
        told = f"Don't split: the best split, {name}, is {slower}"
    elif answer.verdict is found.AdviceVerdict.SPLIT:
        told = f"Split: {name} is {statements.times_text(speedup.median)} as fast as one device"
    else:
        told = f"Cannot tell yet: {name} is {statements.with_range(speedup.median, speedup)}"
    return told if answer.basis == "measured" else f"{told}, {answer.basis}"


def _actions(analysis: found.Analysis) -> Iterator[str]:
    """Yield what to do, first what the verdict asks for."""
    how, run = analysis.how, analysis.recommendation.next_run
    is_split = statements.verdict_is_split(analysis)
    if is_split and how is not None:
        yield f"Place {how.candidate}: {how.words}."
    if is_split and (captured := analysis.model.captured) is not None:
        yield f"Train with it: {captured.run_command}"
    if analysis.verdict is found.AdviceVerdict.STAY_SINGLE:
        yield "Keep the step on one device."
    if run is not None:
        takes = units.format_duration(run.takes_ns / units.NS_PER_S)
        yield f"To know more, run the same command {run.change}: about {takes}."
    for finding in sorted(analysis.findings, key=lambda finding: finding.is_hypothetical):
        saves = f" (saves {statements.saving_text(finding.saving)})" if finding.saving else ""
        yield f"{finding.code}: {finding.action}{saves}"


def _finding(finding: found.Finding) -> Section:
    other = "This is about a split that is not recommended." if finding.is_hypothetical else ""
    saves = f"Saves {statements.saving_text(finding.saving)}." if finding.saving else ""
    where = statements.where_text(finding)
    texts = Part(other, is_hint=True), Part(finding.action), Part(where, is_hint=True), Part(saves)
    means = Part(markdown=finding_page(finding.code), folded=f"What {finding.code} means")
    parts = (*(each for each in texts if each.text), means)
    return Section(f"{finding.code} {finding.finding}", parts)


def _how(analysis: found.Analysis, how: found.HowToSplit) -> Section:
    parts = [Part(f": {how.words}.", lead=how.candidate)]
    if not statements.verdict_is_split(analysis):
        parts.append(Part(statements.NOT_RECOMMENDED, is_hint=True))
    parts += [Part(_OWN_STEP), Part(code=how.call)]
    if how.listing is not None:
        parts.append(Part(code=how.listing, folded="The same by hand"))
    return Section(statements.how_title(analysis), tuple(parts))


def _break_even(break_even: BreakEven) -> Section:
    def sweep(each: Sweep) -> Part:
        rows = []
        for point in each.points:
            ratio, is_here = point.best.ratio, point.value == each.here.value
            said = ", ".join(["here"] * is_here + ["wins"] * (ratio < break_even.worthwhile_ratio))
            value = analysis_report.value_text(each.axis, point.value)
            rows.append((value, point.best.split, speedup_of(ratio), said))
        caption, head = f"The best split by {each.axis}, simulated", (each.axis.value, *_SWEEP)
        table = Table(caption, head, tuple(rows))
        return Part(table=table, folded=f"All that was tried: {each.axis}")

    title, lines = (
        analysis_report.break_even_title(break_even),
        analysis_report.break_even_lines(break_even),
    )
    charts = tuple(Chart.of(each, break_even.worthwhile_ratio) for each in break_even.sweeps())
    told = Part(items=(*lines, analysis_report.BREAK_EVEN_NOTE), folded="In words")
    parts = Part(charts=charts), Part(f"{title}."), told, *map(sweep, break_even.sweeps())
    return Section("Break-even", parts)


def _scaling(rows: Sequence[ScalingRow], within_rounds: Mapping[str, float]) -> Section:
    cells = [
        (
            *(row.name, row.candidate, str(row.devices), str(row.batch)),
            *(each or NOTHING for each in statements.scaling_figures(row, rows[0], within_rounds)),
        )
        for row in rows
    ]
    caption = "Step, throughput, and at the same batch how many times that of one device"
    table = Table(caption, _SCALING, tuple(cells))
    return Section("Scaling", (Part(table=table), Part(statements.WHICH, is_hint=True)))


@dataclass(frozen=True, slots=True)
class Timeline:
    """A step over time."""

    heading: Text
    """Begins with whether it is simulated or measured."""
    step_ns: Count
    names: Rows[Text]
    spans: Rows[tuple[Count, Count, Count, Count]]
    """Numbers of a lane and a name, start and end."""
    copies: Rows[Count]
    """Numbers of lanes with copies; the others have ops."""

    @classmethod
    def of(cls, step: timeline_plot.Step, lanes: Mapping[str, int]) -> Timeline:
        """Return it as it is drawn."""
        spans = step.spans
        names = {name: i for i, name in enumerate(dict.fromkeys(span.name for span in spans))}
        ordered = sorted(spans, key=lambda span: (lanes[span.lane], span.start_ns, span.end_ns))
        drawn = ((lanes[s.lane], names[s.name], s.start_ns, s.end_ns) for s in ordered)
        copies = sorted({lanes[span.lane] for span in spans if span.is_copy})
        return cls(step.heading, step.step_ns, tuple(names), tuple(drawn), tuple(copies))


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is shown of one candidate."""

    __pydantic_config__: ClassVar = STRICT

    layers: Rows[Count | None] | None
    """Number of each layer's device; None for a split of the batch, whose ops are others."""
    cuts: Rows[tuple[Count, Count | None]] | None
    """Numbers of flows that cross to another device, each with its bytes."""
    copies: Rows[Part]
    tensors: Rows[Part]
    """Those that cross as predicted, largest first."""
    activities: Rows[Part]
    """What took the time of the profiled steps; empty without a profile."""
    lanes: Rows[Text]
    timelines: Rows[Timeline]
    left_out: Text | None = None
    """Why there are no timelines."""

    def __post_init__(self) -> None:
        for i, each in enumerate(self.timelines):
            place = f"timelines[{i}].spans"
            check_below(len(self.lanes), place, (lane for lane, *_ in each.spans))
            check_below(len(each.names), place, (name for _, name, *_ in each.spans))

    def check(self, overview: Overview) -> None:
        """Check that it is about the layers of an overview.

        Raises:
            MisfitError: it is not.
        """
        layers, flows = len(overview.graph.layers), len(overview.graph.flows)
        if self.layers is not None and len(self.layers) != layers:
            raise MisfitError(f"{len(self.layers)} of {layers} layers", "layers")
        check_below(flows, "cuts", (flow for flow, _ in self.cuts or ()))

    @classmethod
    def of(
        cls,
        candidate: found.Candidate,
        graph: OpGraph,
        layers: layer_layout.LayerMap,
        devices: tuple[str, ...],
    ) -> Details:
        """Return what is shown of a candidate."""
        steps = [step for step in timeline_plot.steps_of(candidate) if step.spans]
        others = sorted({span.lane for step in steps for span in step.spans})
        lanes = {name: i for i, name in enumerate(dict.fromkeys([*devices, *others]))}
        placement = candidate.placement if candidate.samples is None else None
        numbers = {name: i for i, name in enumerate(devices)}
        return cls(
            layers=tuple(map(numbers.get, layers.devices(placement))) if placement else None,
            cuts=tuple(layers.cut_bytes(graph, placement).items()) if placement else None,
            copies=(_copies(candidate.predicted, candidate.profile, devices),),
            tensors=_tensors(candidate.predicted.transfers if candidate.predicted else ()),
            activities=_activities(candidate.profile) if candidate.profile else (),
            lanes=tuple(lanes),
            timelines=tuple(Timeline.of(step, lanes) for step in steps),
        )


def _copies(
    predicted: schedules.Schedule | None, profile: StepProfile | None, devices: tuple[str, ...]
) -> Part:
    """Return who copies how much to whom."""
    simulated = analysis_report.simulated_copies(predicted) if predicted else {}
    measured = {
        (each.source, each.target): (
            each.count,
            units.format_bytes(each.size_bytes),
            units.format_ns(each.time_ns),
        )
        for each in (profile.transfers if profile else ())
    }
    used = [place for pair in (*simulated, *measured) for place in pair]
    if not used:
        return Part("No copies between devices.")
    places = dict.fromkeys([*(name for name in devices if name in used), *used])

    def cell(source: str, target: str) -> str:
        both = (each.get((source, target), (NOTHING,)) for each in (simulated, measured))
        return "" if source == target else " | ".join(", ".join(map(str, told)) for told in both)

    caption = "Copies from row to column: number, bytes and time, predicted | measured"
    rows = ((source, *(cell(source, target) for target in places)) for source in places)
    return Part(table=Table(caption, ("", *places), tuple(rows)))


def _tensors(transfers: Sequence[schedules.Transfer]) -> tuple[Part, ...]:
    if not transfers:
        return ()
    ordered = sorted(transfers, key=lambda copy: (-(copy.size_bytes or 0), copy.tensor))

    def cells(copy: schedules.Transfer) -> tuple[str, ...]:
        way, time_ns = f"{copy.source} → {copy.target}", copy.end_ns - copy.start_ns
        return copy.tensor, way, units.format_bytes(copy.size_bytes), units.format_ns(time_ns)

    rows = tuple(map(cells, ordered[:_MOST_TENSORS]))
    return (Part(table=Table(_CROSSING, _TENSORS, rows, count=len(ordered))),)


def _activities(profile: StepProfile) -> tuple[Part, ...]:
    shares = statements.activity_shares(profile)
    if shares is None:
        return (Part("The profile is empty."),)
    rows = statements.activity_rows(profile.activities, statements.REPORT_ACTIVITIES)
    bold = tuple(number for number, row in enumerate(rows) if row.is_copy)
    cells = tuple(row.cells for row in rows)
    return Part(f"{shares.capitalize()}."), Part(
        table=Table(_RAN, statements.ACTIVITY_HEADINGS, cells, bold)
    )


_HINT = "give the folder of an analysis, as `advisor analyze MODEL` leaves it"


def read_overview(path: Path) -> Overview:
    """Return what is shown first of an analysis.

    Raises:
        AdvisorError: the file cannot be read, or is damaged.
    """
    with refusing(path, _HINT):
        return read(Overview, path)


def read_details(path: Path, overview: Overview) -> Details:
    """Return what is shown of one of the candidates of an overview.

    Raises:
        AdvisorError: the file cannot be read, or is damaged, or does not fit the overview.
    """
    with refusing(path, _HINT):
        details = read(Details, path)
        details.check(overview)
        return details


def compact(content: Overview | Details) -> str:
    """Return it as the text of its file."""
    return json.dumps(plain(content), ensure_ascii=False, separators=(",", ":"))


class Tab:
    """The files of the tab in one log directory."""

    def __init__(self, folder: Path, graph: OpGraph) -> None:
        """Write into a log directory, about candidates for a graph."""
        self._folder, self._graph = folder, graph
        # What has been written of each candidate: its prediction, its profile.
        self._written: dict[str, tuple[object, object]] = {}

    def show(self, analysis: found.Analysis | AnalysisSnapshot) -> None:
        """Write what there is; of candidates, what is new."""
        for candidate in analysis.candidates:
            content = candidate.predicted, candidate.profile
            if analysis.testbed and self._written.get(candidate.name, (None, None)) != content:
                devices = analysis.testbed.cluster.place_names()
                details = Details.of(candidate, self._graph, self._layers, devices)
                self._write(f"{DETAILS}/{candidate.name}.json", details)
                self._written[candidate.name] = content
        self._write(OVERVIEW, Overview.of(analysis, self._layers))

    def _write(self, name: str, content: Overview | Details) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(compact(content), encoding="utf-8")
        new.replace(path)

    @cached_property
    def _layers(self) -> layer_layout.LayerMap:
        return layer_layout.layer_map(self._graph)
