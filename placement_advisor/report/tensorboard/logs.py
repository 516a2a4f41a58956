"""Writes an analysis for TensorBoard's own pages: event files, and steps as XProf profiles.

Events are written by TensorBoard's record writer; its front end is not used, since that
imports TensorFlow where it is installed. A simulated step is written as the profile of a GPU
whatever its devices are, since XProf shows step times of no others.
"""

from __future__ import annotations

import re
from hashlib import sha256
from io import BytesIO
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.files.output import BOTH, SIMULATED, profile_run
from placement_advisor.profile.xplane import Event, Line, Plane, write_planes
from placement_advisor.report.pictures.timeline_plot import simulated_spans
from placement_advisor.report.statements import fastest_first
from placement_advisor.units import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis, Candidate
    from placement_advisor.measurement.measurement import Span
    from placement_advisor.profile.xplane_schema import StatValue
    from placement_advisor.simulator.schedule import Schedule


# TensorBoard reads files with this in their names. The rest is from their content: it reads no file
# again that another analysis has put in the place of one that it knows.
_FILE = "events.out.tfevents"
_FORMAT = "brain.Event:2"
_STEP_MS = (
    "Median step of each round, without the profiler. In a round candidates take turns: what slows "
    "the machine for a while shows in all curves."
)
_PICTURES = ("timeline", "comparison", "break-even")
# In the tab Text a picture beside the report would be asked of TensorBoard, which has none there.
_PICTURE_IN_TEXT = re.compile(rf"!\[([^]]*)\]\(({'|'.join(_PICTURES)})\.png\)")


def write_events(analysis: Analysis, reports: Path, folder: Path) -> None:
    """Write the events of an analysis, whose reports lie in a folder, into a log directory.

    Each candidate that ran is a run with its step over the rounds; text and pictures are a run of
    their own.
    """
    for candidate in analysis.candidates:
        events = list(_scalars(candidate))
        if events:
            _write(events, folder / candidate.name)
    report = (reports / "report.md").read_text(encoding="utf-8")
    text = _PICTURE_IN_TEXT.sub(r"*\1: see \2 in the tab Images.*", report)
    pictures = (reports / f"{name}.png" for name in _PICTURES)
    events = [_text("report", text), *(_picture(path) for path in pictures if path.exists())]
    _write(events, folder / "report")


def _scalars(candidate: Candidate) -> Iterator[Any]:
    """Yield its median step in each round that it completed."""
    from tensorboard.compat.proto import tensor_pb2, types_pb2
    from tensorboard.plugins.scalar import metadata

    for number, steps_ns in enumerate(candidate.measured.rounds if candidate.measured else ()):
        if steps_ns:
            value = median(steps_ns) / NS_PER_MS
            tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[value])
            yield _tensorboard_event("step_ms", tensor, metadata, step=number, description=_STEP_MS)


def _text(tag: str, text: str) -> Any:
    from tensorboard.plugins.text import metadata

    return _tensorboard_event(tag, _strings(text.encode()), metadata)


def _picture(path: Path) -> Any:
    from tensorboard.plugins.image import metadata

    content = path.read_bytes()
    # A PNG begins with eight bytes of its own, the head of its first part, and its size.
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    return _tensorboard_event(path.stem, _strings(b"%d" % width, b"%d" % height, content), metadata)


def _strings(*values: bytes) -> Any:
    from tensorboard.compat.proto import tensor_pb2, tensor_shape_pb2, types_pb2

    size = tensor_shape_pb2.TensorShapeProto.Dim(size=len(values))
    shape = tensor_shape_pb2.TensorShapeProto(dim=[size])
    return tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=list(values)
    )


def _tensorboard_event(
    tag: str, tensor: Any, metadata: Any, *, step: int = 0, description: str | None = None
) -> Any:
    """Return an event for the tab that the module ``metadata`` belongs to."""
    from tensorboard.compat.proto import event_pb2, summary_pb2

    described = metadata.create_summary_metadata(display_name=None, description=description)
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=described)
    return event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value]))


def _write(events: Sequence[Any], folder: Path) -> None:
    from tensorboard.compat.proto import event_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = BytesIO()
    writer = RecordWriter(content)
    for event in (event_pb2.Event(file_version=_FORMAT), *events):
        writer.write(event.SerializeToString(deterministic=True))
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{_FILE}.{sha256(content.getvalue()).hexdigest()[:16]}"
    (folder / name).write_bytes(content.getvalue())


# XProf takes each for a device: the first has its step times counted, the second any name.
_DEVICE = "/device:GPU"
_ANY = "/device:CUSTOM"
# The one spelling that XProf counts as copies between devices; with a colon behind it, it is an op.
_COPY = "MEMCPYDtoD"
# By which XProf knows a line of steps. Without one, a step would end with its last op, although
# devices have to answer then.
_STEPS_ID = -0x21524111


def write_profile_runs(analysis: Analysis, folder: Path) -> None:
    """Write the steps of the candidates that ran, or of all that were predicted if none did."""
    for candidate in fastest_first(analysis):
        for which, planes in _runs(candidate).items():
            path = folder / profile_run(candidate.name, which) / f"{which}.xplane.pb"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_planes(path, planes)


def _runs(candidate: Candidate) -> dict[str, Iterable[Plane]]:
    if candidate.predicted is None:
        return {}
    profile = candidate.profile
    runs: dict[str, Iterable[Plane]] = {SIMULATED: simulated_planes(candidate.predicted)}
    if profile is not None and profile.timeline:
        spans = {"simulated": simulated_spans(candidate.predicted), "measured": profile.timeline}
        runs[BOTH] = planes_side_by_side(spans)
    return runs


def simulated_planes(schedule: Schedule) -> Iterator[Plane]:
    """Yield a simulated step as planes, with what XProf needs to find the step in them."""
    numbers = count(1)

    def stats(**more: StatValue) -> dict[str, StatValue]:
        return {"group_id": 0, "correlation_id": next(numbers), **more}

    number = {device: i for i, device in enumerate(schedule.compute_ns)}
    for device, i in number.items():
        lines = {
            "ops": [
                _plane_event(run.op, run.start_ns, run.end_ns, stats())
                for run in schedule.runs
                if run.device == device
            ]
        }
        for copy in schedule.transfers:
            if copy.source == device:
                size = "" if copy.size_bytes is None else f"size:{copy.size_bytes} "
                details = f"{size}dest:{number[copy.target]} async:1"
                event = _plane_event(
                    f"{_COPY} {copy.producer}",
                    copy.start_ns,
                    copy.end_ns,
                    stats(memcpy_details=details),
                )
                lines.setdefault(f"copies to {copy.target}", []).append(event)
        step = _plane_event("0", 0, schedule.step_ns, {"group_id": 0})
        steps = Line(name="Steps", id=_STEPS_ID, events=(step,))
        yield Plane(name=f"{_DEVICE}:{i} {device}", lines=(steps, *_lines(lines)))


def planes_side_by_side(steps: Mapping[str, Sequence[Span]]) -> Iterator[Plane]:
    """Yield a plane for each lane of each step, the steps of one lane under one another."""
    lanes = {span.lane for spans in steps.values() for span in spans}
    for lane in sorted(lanes, key=_copies_last):
        for which, spans in steps.items():
            events = [
                _plane_event(s.name, s.start_ns, s.end_ns, {}) for s in spans if s.lane == lane
            ]
            yield Plane(name=f"{_ANY}:{which} {lane}", lines=_lines({"events": events}))


def _copies_last(lane: str) -> tuple[bool, str]:
    return "→" in lane, lane


def _plane_event(name: str, start_ns: int, end_ns: int, stats: Mapping[str, StatValue]) -> Event:
    return Event(name=name, start_ns=start_ns, duration_ns=end_ns - start_ns, stats=stats)


def _lines(events_of: Mapping[str, Iterable[Event]]) -> tuple[Line, ...]:
    """Return lines on which nothing overlaps: as many of each name as that takes."""
    lines: list[tuple[str, list[Event]]] = []
    for name, events in events_of.items():
        first = len(lines)
        for event in sorted(events, key=lambda event: (event.start_ns, event.end_ns)):
            free = (some for _, some in lines[first:] if some[-1].end_ns <= event.start_ns)
            taken = next(free, None)
            if taken is None:
                lines.append((name, [event]))
            else:
                taken.append(event)
    return tuple(
        Line(name=name, id=i, events=tuple(events)) for i, (name, events) in enumerate(lines, 1)
    )
