"""``timeline.png`` and ``timelines/`` show one step over time, simulated above measured.

A row is a device: what it computes above, the copies on their way to it below. A device waits
where it has a copy and computes nothing. Bars that no pixel can show apart are merged; the
tab and the XProf profiles draw the same bars.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import Span
from placement_advisor.report import statements
from placement_advisor.report.pictures import canvas
from placement_advisor.simulator.schedule import Schedule, intervals_length, merged_intervals
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from placement_advisor.analysis.analysis_result import Analysis, Candidate


_ARROW = " → "
SIMULATED, MEASURED = "simulated", "measured"
# A bar this narrow cannot be told from its neighbours.
_TINY_PIXELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One or several spans, of which something runs for ``busy_ns``; of several it has no name."""

    name: str
    start_ns: int
    end_ns: int
    busy_ns: int

    def share(self, pixel_ns: float) -> float:
        """Return for which share of its width, a pixel at least, something runs."""
        return self.busy_ns / max(self.end_ns - self.start_ns, pixel_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a candidate, simulated or measured.

    ``launches`` has when hosts launch ops on devices, which is simulated alone.
    """

    heading: str
    step_ns: int
    spans: tuple[Span, ...]
    launches: tuple[Span, ...] = ()

    @property
    def end_ns(self) -> int:
        """When all of it is over; a copy may outlast the step."""
        return max([self.step_ns, *(span.end_ns for span in self.spans)])

    def computing(self, device: str) -> tuple[Span, ...]:
        """Return what a device computes."""
        return tuple(span for span in self.spans if not span.is_copy and _place(span) == device)

    def launching(self, device: str) -> tuple[Span, ...]:
        """Return when the host of a device launches ops on it."""
        return tuple(span for span in self.launches if span.lane == device)

    def copies_to(self, device: str) -> tuple[Span, ...]:
        """Return the copies to a device."""
        return tuple(span for span in self.spans if span.is_copy and _place(span) == device)


def steps_of(candidate: Candidate) -> tuple[Step, ...]:
    """Return the simulated and the measured step, as far as there are any.

    Measured is the profiled step of median length, where profiles can be relied on.
    """
    steps = []
    if candidate.predicted is not None:
        step_ns = candidate.predicted.step_ns
        steps.append(
            Step(
                heading=heading_of(SIMULATED, step_ns),
                step_ns=step_ns,
                spans=simulated_spans(candidate.predicted),
                launches=_launches(candidate.predicted),
            )
        )
    profile = candidate.profile
    if profile is not None and profile.step_ns:
        step_ns = round(median(profile.step_ns))
        steps.append(
            Step(heading=heading_of(MEASURED, step_ns), step_ns=step_ns, spans=profile.timeline)
        )
    return tuple(steps)


def heading_of(which: str, step_ns: int) -> str:
    """Return what a timeline shows, so that its times are not taken for those of other reports."""
    if which == SIMULATED:
        return f"simulated, step {format_ns(step_ns)}"
    return f"measured, one profiled step, of median length: {format_ns(step_ns)}"


def rows_of(devices: Iterable[str], steps: Iterable[Step]) -> dict[str, int]:
    """Return the devices, idle ones too, then other places that have spans: hosts.

    Each with the time that it computes or is copied to, over all steps.
    """
    spans = [span for step in steps for span in step.spans]
    names = dict.fromkeys([*devices, *sorted({_place(span) for span in spans})])
    return {name: busy_ns(span for span in spans if _place(span) == name) for name in names}


def merge(spans: Iterable[Span], pixel_ns: float) -> tuple[Bar, ...]:
    """Return bars for spans.

    Spans that overlap by a pixel become one bar; so do tiny ones with less than a pixel between
    them. A bar of several has no name.
    """
    bars: list[Bar] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, span.end_ns)):
        last = bars[-1] if bars else None
        if last is not None and _joins(last, span, pixel_ns):
            more_ns = max(0, span.end_ns - max(span.start_ns, last.end_ns))
            end_ns = max(last.end_ns, span.end_ns)
            bars[-1] = replace(last, name="", end_ns=end_ns, busy_ns=last.busy_ns + more_ns)
            continue
        name = span.name.rsplit("/", 1)[-1]
        length_ns = span.end_ns - span.start_ns
        bars.append(Bar(name=name, start_ns=span.start_ns, end_ns=span.end_ns, busy_ns=length_ns))
    return tuple(bars)


def busy_ns(spans: Iterable[Span]) -> int:
    """Return the time during which at least one span runs."""
    return intervals_length(merged_intervals((span.start_ns, span.end_ns) for span in spans))


def _joins(last: Bar, span: Span, pixel_ns: float) -> bool:
    gap_ns = span.start_ns - last.end_ns
    if gap_ns <= -pixel_ns:
        return True
    tiny_ns = _TINY_PIXELS * pixel_ns
    last_is_tiny = not last.name or last.end_ns - last.start_ns < tiny_ns
    return gap_ns < pixel_ns and last_is_tiny and span.end_ns - span.start_ns < tiny_ns


def simulated_spans(schedule: Schedule) -> tuple[Span, ...]:
    """Return a simulated step as spans, as the profiler would have seen it."""
    runs = tuple(
        Span(lane=run.device, name=run.op, start_ns=run.start_ns, end_ns=run.end_ns, is_copy=False)
        for run in schedule.runs
    )
    copies = tuple(
        Span(
            lane=f"{copy.source}{_ARROW}{copy.target}",
            name=copy.producer,
            start_ns=copy.start_ns,
            end_ns=copy.end_ns,
            is_copy=True,
        )
        for copy in schedule.transfers
    )
    return runs + copies


def _launches(schedule: Schedule) -> tuple[Span, ...]:
    return tuple(
        Span(lane=run.device, name=run.op, start_ns=start, end_ns=end, is_copy=False)
        for run in schedule.runs
        if run.launch is not None
        for start, end in [run.launch]
    )


def _place(span: Span) -> str:
    """Return the device that computes, or that a copy goes to."""
    return span.lane.rpartition(_ARROW)[2] if span.is_copy else span.lane


# No screen shows a higher picture as a whole.
_MAX_HEIGHT_IN = 12.0
_NAME_IN = 0.28
_HEADING_IN = 0.2
_GAP_IN = 0.1
# Below the least, names of devices would touch.
_LEAST_ROW_IN = 0.12
_ROW_IN = 0.3
_NAME_SIZE = canvas.FONT_SIZE + 2
# Where compute and copies begin in a row, and their shares of its height.
_COMPUTE_STRIP = (0.08, 0.56)
_COPIES_STRIP = (0.66, 0.26)
# Room for names of devices at most, and for what they compute.
_DEVICES_IN = 2.0
_BUSY_IN = 0.75
# The width of the rows at most: less than this is invisible.
_PIXELS_ACROSS = 1_200
# An op wider than this many pixels is parted from the next by a hairline.
_PARTED_PIXELS = 5
# Lower bars hold no text, nor do narrower ones.
_WORDED_IN = 0.14
_LEAST_NAME_IN = 0.2


def plot_timelines(analysis: Analysis, folder: Path) -> None:
    """Write ``timeline.png``: single and the best others; and a picture for each of the rest."""
    canvas.save(draw_timeline(analysis, statements.in_timeline(analysis)), folder / "timeline.png")
    for candidate in statements.in_own_timelines(analysis):
        path = folder / "timelines" / f"{candidate.name}.png"
        path.parent.mkdir(exist_ok=True)
        canvas.save(draw_timeline(analysis, [candidate]), path)


@canvas.plain_style()
def draw_timeline(
    analysis: Analysis, candidates: Sequence[Candidate], page: canvas.Page = canvas.new_page
) -> Figure:
    """Return the picture of some candidates."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = [(candidate, steps_of(candidate)) for candidate in candidates]
    steps = [step for _, its_steps in found for step in its_steps]
    fixed_in = (
        canvas.HEAD_IN
        + canvas.AXIS_IN
        + (_NAME_IN + _GAP_IN) * len(found)
        + _HEADING_IN * len(steps)
    )
    room_in = _MAX_HEIGHT_IN - fixed_in
    most_rows = int(room_in / _LEAST_ROW_IN / max(1, len(steps)))
    panels = [_panel(analysis, candidate, its_steps, most_rows) for candidate, its_steps in found]
    row_count = max(1, sum(len(panel.steps) * len(panel.devices) for panel in panels))
    row_in = min(_ROW_IN, room_in / row_count)
    devices = canvas.told_apart(
        [device for panel in panels for device in panel.devices],
        canvas.SMALL_FONT_SIZE,
        _DEVICES_IN,
    )
    widest_in = max(
        (canvas.text_width_in(name, canvas.SMALL_FONT_SIZE) for name in devices.values()), default=0
    )
    drawn = _Page(
        figure=page(fixed_in + row_in * row_count),
        left_in=canvas.MARGIN_IN + widest_in + 0.1,
        end_ns=max((step.end_ns for step in steps), default=1),
        row_in=row_in,
        devices=devices,
    )
    drawn.draw(panels)
    launches = any(step.launches for step in steps)
    canvas.add_head(
        drawn.figure,
        analysis.title,
        canvas.headline(analysis, candidates),
        [
            Patch(label="compute, as high as its share of the time", color=canvas.COMPUTE_COLOR),
            Patch(label="copy to the device", color=canvas.COPY_COLOR),
            *(
                [Patch(label="the host launches ops", color=canvas.LAUNCH_COLOR)]
                if launches
                else []
            ),
            Line2D([], [], label="end of step", color=canvas.INK, linestyle="--", linewidth=1.2),
        ],
    )
    return drawn.figure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """What is drawn of a candidate; ``device_count`` counts the devices left out as well."""

    name: str
    outcome: str
    steps: tuple[Step, ...]
    devices: tuple[str, ...]
    device_count: int


def _panel(
    analysis: Analysis, candidate: Candidate, steps: tuple[Step, ...], most_rows: int
) -> _Panel:
    """Return a panel of the busiest devices, as many as there may be rows, in their order."""
    busy = rows_of(analysis.testbed.cluster.device_names(), steps)
    busiest = sorted(busy, key=lambda device: -busy[device])[:most_rows]
    return _Panel(
        name=candidate.name,
        outcome=_outcome(analysis, candidate),
        steps=steps,
        devices=tuple(device for device in busy if device in busiest),
        device_count=len(busy),
    )


def _outcome(analysis: Analysis, candidate: Candidate) -> str:
    """Return how a candidate came out."""
    if candidate.failure is not None:
        return f"failed: {statements.failure_kind_text(candidate.failure)}"
    unseen = "" if candidate.profile is not None else f", {statements.NO_PROFILE}"
    factor = statements.speedup(candidate)
    if factor is not None:
        measured = (
            f"measured speed-up {statements.times_text(factor.median)} (95 % "
            f"{statements.range_text(factor)})"
        )
        return measured + unseen
    if statements.did_run(candidate):
        return f"measured{' baseline' if candidate.name == BASELINE else ''}{unseen}"
    if candidate.name == BASELINE:
        return "simulated baseline, did not run"
    return (
        f"simulated speed-up "
        f"{statements.times_text(statements.predicted_speedup(analysis, candidate))}, did not run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Where things go; ``devices`` are their names as drawn."""

    figure: Figure
    left_in: float
    end_ns: int
    row_in: float
    devices: Mapping[str, str]

    def draw(self, panels: Sequence[_Panel]) -> None:
        """Draw all panels under one another over one time axis."""
        right_in = canvas.WIDTH_IN - _BUSY_IN
        ax = canvas.add_time_axis(self.figure, self.left_in, right_in, canvas.HEAD_IN, self.end_ns)
        widest_in = max(
            (canvas.text_width_in(p.outcome, canvas.FONT_SIZE) for p in panels), default=0
        )
        room_in = right_in - self.left_in - widest_in - 0.3
        names = canvas.told_apart([panel.name for panel in panels], _NAME_SIZE, room_in, "bold")
        top = canvas.HEAD_IN
        for panel in panels:
            middle = top + _NAME_IN / 2
            name = names[panel.name]
            canvas.write(self.figure, self.left_in, middle, name, size=_NAME_SIZE, weight="bold")
            canvas.write(self.figure, right_in, middle, panel.outcome, ha="right")
            top += _NAME_IN
            for step in panel.steps:
                self._draw_step(ax, panel, step, top)
                top += _HEADING_IN + self.row_in * len(panel.devices)
            top += _GAP_IN

    def _draw_step(self, ax: Axes, panel: _Panel, step: Step, top: float) -> None:
        heading = step.heading
        if len(panel.devices) < panel.device_count:
            heading += f"; the busiest {len(panel.devices)} of {panel.device_count} devices"
        middle = top + _HEADING_IN / 2
        canvas.write(self.figure, self.left_in, middle, heading, fontstyle="italic")
        self._beside(middle, "computes")
        top += _HEADING_IN
        for place, device in enumerate(panel.devices):
            self._draw_row(ax, step, device, top + place * self.row_in)
        ends = (top, top + len(panel.devices) * self.row_in)
        ax.plot([step.step_ns, step.step_ns], ends, color=canvas.INK, ls="--", lw=1.2)

    def _draw_row(self, ax: Axes, step: Step, device: str, top: float) -> None:
        from matplotlib.collections import PolyCollection

        height = self.row_in
        pixel_ns = self.end_ns / _PIXELS_ACROSS
        computing = step.computing(device)
        ax.axhspan(
            top + 0.04 * height, top + 0.96 * height, color=canvas.BAND_COLOR, lw=0, zorder=0
        )
        compute, copies = merge(computing, pixel_ns), merge(step.copies_to(device), pixel_ns)
        launches = merge(step.launching(device), pixel_ns)
        for bars, (start, share), color in (
            (launches, _COMPUTE_STRIP, canvas.LAUNCH_COLOR),
            (compute, _COMPUTE_STRIP, canvas.COMPUTE_COLOR),
            (copies, _COPIES_STRIP, canvas.COPY_COLOR),
        ):
            bottom, most = top + (start + share) * height, share * height
            drawn = [_rectangle(bar, bottom, most, pixel_ns) for bar in bars]
            ax.add_collection(PolyCollection(drawn, facecolors=color, linewidths=0))
            wide = [bar for bar in bars if bar.end_ns - bar.start_ns > _PARTED_PIXELS * pixel_ns]
            starts = [bar.start_ns for bar in wide]
            ax.vlines(starts, bottom - most, bottom, color="white", lw=0.6)
        start, share = _COMPUTE_STRIP
        if share * height >= _WORDED_IN:
            self._name(ax, compute, top + (start + share / 2) * height)
        middle = top + height / 2
        name = self.devices[device]
        canvas.write(
            self.figure, self.left_in - 0.08, middle, name, size=canvas.SMALL_FONT_SIZE, ha="right"
        )
        self._beside(middle, format_ns(busy_ns(computing)))

    def _name(self, ax: Axes, bars: Sequence[Bar], middle: float) -> None:
        """Write the names of ops into the bars that are wide enough."""
        ns_per_in = self.end_ns / (canvas.WIDTH_IN - _BUSY_IN - self.left_in)
        for bar in bars:
            room_in = (bar.end_ns - bar.start_ns) / ns_per_in - 0.1
            name = canvas.drawable(bar.name)
            if (
                name
                and room_in > _LEAST_NAME_IN
                and canvas.text_width_in(name, canvas.SMALL_FONT_SIZE) < room_in
            ):
                x = (bar.start_ns + bar.end_ns) / 2
                canvas.write_on(ax, x, middle, name, size=canvas.SMALL_FONT_SIZE, color="white")

    def _beside(self, y_in: float, text: str) -> None:
        x_in = canvas.WIDTH_IN - _BUSY_IN + 0.08
        canvas.write(self.figure, x_in, y_in, text, size=canvas.SMALL_FONT_SIZE, color=canvas.FAINT)


def _rectangle(
    bar: Bar, bottom: float, most: float, pixel_ns: float
) -> tuple[tuple[float, float], ...]:
    """Return the corners of a bar that stands on a height: as large as its time.

    A bar of ops shorter than the time between them would else look like work all the time.
    """
    start, end = bar.start_ns, max(bar.end_ns, bar.start_ns + pixel_ns)
    top = bottom - most * bar.share(pixel_ns)
    return (start, bottom), (start, top), (end, top), (end, bottom)
