"""Event files, read back with TensorBoard's messages."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sample_analysis import sample
from simulated_steps import towers
from tensorboard.compat.proto import event_pb2

from placement_advisor.report.tensorboard.event_files import write_events


@pytest.fixture
def written(tmp_path: Path) -> Path:
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "report.md").write_text("# <b>split</b>\n![Timeline: lanes](timeline.png)\n")
    (reports / "timeline.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + b"rest"
    )
    write_events(sample(), reports, tmp_path / "log")
    return tmp_path / "log"


def values(folder: Path) -> list[tuple[int, Any]]:
    """Return step and value of each event."""
    (file,) = folder.iterdir()
    assert "tfevents" in file.name
    content, at, events = file.read_bytes(), 0, []
    while at < len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        events.append(event_pb2.Event.FromString(content[at + 12 : at + 12 + size]))
        at += 12 + size + 4
    assert events[0].file_version == "brain.Event:2"
    return [(event.step, value) for event in events[1:] for value in event.summary.value]


def test_each_candidate_is_a_run_with_its_figures(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == {
        "single",
        "towers",
        "alternating",
        "report",
    }
    found = values(written / "towers")
    first = {value.tag: value.tensor.float_val[0] for step, value in found if step == 0}
    assert first["step_ms/simulated"] == pytest.approx(30.1)
    assert first["step_ms/measured"] == pytest.approx(30.5)
    assert first["copied_bytes/simulated"] == 1_416_384
    every = [step for step, value in found if value.tag == "step_ms/every_measured"]
    assert every == list(range(36))  # 12 rounds of 3 steps
    assert {value.metadata.plugin_data.plugin_name for _, value in found} == {"scalars"}
    assert not any("measured" in value.tag for _, value in values(written / "alternating"))


def test_the_report_is_text_and_its_pictures_are_images(written: Path) -> None:
    (_, report), (_, picture) = values(written / "report")
    assert report.metadata.plugin_data.plugin_name == "text"
    assert report.tensor.string_val[0] == (
        b"# <b>split</b>\n*Timeline: lanes: see timeline in the tab Images.*\n"
    )
    assert picture.tag == "timeline"
    assert picture.metadata.plugin_data.plugin_name == "images"
    assert list(picture.tensor.string_val[:2]) == [b"640", b"480"]


def test_writing_them_imports_no_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("report")
    code = (
        "import sys; from pathlib import Path; from sample_analysis import sample;"
        "from placement_advisor.report.tensorboard.event_files import write_events;"
        f"write_events(sample(), Path({str(tmp_path)!r}), Path({str(tmp_path / 'log')!r}));"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True)


def test_bytes_that_nobody_knows_are_no_scalar(tmp_path: Path) -> None:
    (item,) = [copy for copy in towers().schedule.transfers if copy.size_bytes is None]
    schedule = replace(towers().schedule, transfers=(item,))
    split = replace(sample().candidates[1], predicted=schedule, measured=None)
    (tmp_path / "report.md").write_text("")
    write_events(replace(sample(), candidates=(split,)), tmp_path, tmp_path / "log")
    tags = {value.tag for _, value in values(tmp_path / "log" / "towers")}
    assert "step_ms/simulated" in tags
    assert "copied_bytes/simulated" not in tags
