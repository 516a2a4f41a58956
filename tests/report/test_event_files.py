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


def test_each_candidate_that_ran_is_a_run_with_its_step_over_the_rounds(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == {"single", "towers", "report"}
    found = values(written / "towers")
    assert {value.tag for _, value in found} == {"step_ms"}
    assert {value.metadata.plugin_data.plugin_name for _, value in found} == {"scalars"}
    assert [step for step, _ in found] == list(range(12))
    # A round has steps of 0.1 ms less than its middle, the middle, and 0.1 ms more.
    assert [value.tensor.float_val[0] for _, value in found] == pytest.approx(
        2 * [30.8, 29.9, 31.3, 30.4, 29.6, 30.6]
    )


def test_a_round_that_a_candidate_did_not_complete_is_missing_in_its_curve(tmp_path: Path) -> None:
    single = sample().candidates[0]
    assert single.measured is not None
    measured = replace(single.measured, rounds=((5_000_000,), (), (7_000_000, 9_000_000)))
    (tmp_path / "report.md").write_text("")
    analysis = replace(sample(), candidates=(replace(single, measured=measured),))
    write_events(analysis, tmp_path, tmp_path / "log")
    curve = [(step, each.tensor.float_val[0]) for step, each in values(tmp_path / "log/single")]
    assert curve == [(0, 5.0), (2, 8.0)]


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
