"""An analysis as TensorBoard's own event files: scalars, text and pictures.

The records are those of TensorBoard's writer. Its front for them is left out, since that imports
TensorFlow where it is installed. Left out: wall times, so that equal analyses give equal files.
"""

from __future__ import annotations

import re
from hashlib import sha256
from io import BytesIO
from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.units import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from placement_advisor.analysis.analysis_result import Analysis, Candidate

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
            yield _event("step_ms", tensor, metadata, step=number, description=_STEP_MS)


def _text(tag: str, text: str) -> Any:
    from tensorboard.plugins.text import metadata

    return _event(tag, _strings(text.encode()), metadata)


def _picture(path: Path) -> Any:
    from tensorboard.plugins.image import metadata

    content = path.read_bytes()
    # A PNG begins with eight bytes of its own, the head of its first part, and its size.
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    return _event(path.stem, _strings(b"%d" % width, b"%d" % height, content), metadata)


def _strings(*values: bytes) -> Any:
    from tensorboard.compat.proto import tensor_pb2, tensor_shape_pb2, types_pb2

    size = tensor_shape_pb2.TensorShapeProto.Dim(size=len(values))
    shape = tensor_shape_pb2.TensorShapeProto(dim=[size])
    return tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=list(values)
    )


def _event(
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
