import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_profiles import read_planes
from report_samples import towers
from sample_analysis import US, sample
from tensorboard.compat.proto import event_pb2

from placement_advisor.files.output import profile_run
from placement_advisor.measurement.measurement import Span
from placement_advisor.report.tensorboard import logs


@pytest.fixture
def written(tmp_path):
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "report.md").write_text("# <b>split</b>\n![Timeline: lanes](timeline.png)\n")
    (reports / "timeline.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + b"rest"
    )
    logs.write_events(sample(), reports, tmp_path / "log")
    return tmp_path / "log"


def values(folder):
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


def test_runs_have_a_curve_of_steps_and_the_report_its_text_and_pictures(written):
    assert {path.name for path in written.iterdir()} == {"single", "towers", "report"}
    found = values(written / "towers")
    sorts = {(value.tag, value.metadata.plugin_data.plugin_name) for _, value in found}
    assert sorts == {("step_ms", "scalars")}
    assert [step for step, _ in found] == list(range(12))
    # A round has steps of 0.1 ms less than its middle, the middle, and 0.1 ms more.
    steps_ms = [value.tensor.float_val[0] for _, value in found]
    assert steps_ms == pytest.approx(2 * [30.8, 29.9, 31.3, 30.4, 29.6, 30.6])
    (_, report), (_, picture) = values(written / "report")
    assert report.metadata.plugin_data.plugin_name == "text"
    assert report.tensor.string_val[0] == (
        b"# <b>split</b>\n*Timeline: lanes: see timeline in the tab Images.*\n"
    )
    assert picture.tag == "timeline"
    assert picture.metadata.plugin_data.plugin_name == "images"
    assert list(picture.tensor.string_val[:2]) == [b"640", b"480"]


def test_a_round_that_a_candidate_did_not_complete_is_missing_in_its_curve(tmp_path):
    single = sample().candidates[0]
    measured = replace(single.measured, rounds=((5_000_000,), (), (7_000_000, 9_000_000)))
    (tmp_path / "report.md").write_text("")
    analysis = replace(sample(), candidates=(replace(single, measured=measured),))
    logs.write_events(analysis, tmp_path, tmp_path / "log")
    curve = [(step, each.tensor.float_val[0]) for step, each in values(tmp_path / "log/single")]
    assert curve == [(0, 5.0), (2, 8.0)]


def test_writing_them_imports_no_tensorflow(tmp_path):
    (tmp_path / "report.md").write_text("report")
    code = (
        "import sys; from pathlib import Path; from sample_analysis import sample;"
        "from placement_advisor.report.tensorboard.logs import write_events;"
        f"write_events(sample(), Path({str(tmp_path)!r}), Path({str(tmp_path / 'log')!r}));"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)


def planes_of(log, candidate, which):
    path = log / profile_run(candidate, which) / f"{which}.xplane.pb"
    return {plane.name: plane for plane in read_planes(path)}


def test_a_simulated_step_has_planes_and_stands_above_the_measured_one(tmp_path):
    logs.write_profile_runs(sample(), tmp_path)
    planes = planes_of(tmp_path, "towers", "simulated")
    assert planes.keys() == {"/device:GPU:0 worker:0", "/device:GPU:1 worker:1"}
    steps, ops, copies = planes["/device:GPU:0 worker:0"].lines
    assert (ops.name, copies.name) == ("ops", "copies to worker:1")
    assert ops.events[0].name == "lookup"
    assert (ops.events[0].start_ns, ops.events[0].duration_ns) == (0, 2_000 * US)
    assert [event.name for event in copies.events] == ["MEMCPYDtoD lookup", "MEMCPYDtoD dot"]
    assert copies.events[0].stats["memcpy_details"] == "size:160000 dest:1 async:1"
    (step,) = steps.events
    assert (step.name, step.start_ns, step.duration_ns) == ("0", 0, 30_100 * US)
    assert list(planes_of(tmp_path, "towers", "both")) == [
        f"/device:CUSTOM:{which} {lane}"
        for lane in ("worker:0", "worker:1", "worker:0 → worker:1", "worker:1 → worker:0")
        for which in ("simulated", "measured")
    ]


def test_a_copy_of_unknown_size_states_none(tmp_path):
    candidate = replace(sample().candidates[1], predicted=towers())
    logs.write_profile_runs(replace(sample(), candidates=(candidate,)), tmp_path)
    plane = planes_of(tmp_path, "towers", "simulated")["/device:GPU:1 GPU:1"]
    (event,) = plane.lines[2].events
    assert (event.name, event.stats["memcpy_details"]) == ("MEMCPYDtoD item", "dest:0 async:1")


def test_what_overlaps_stands_on_lines_of_its_own():
    spans = [
        Span(lane="a", name=name, start_ns=start, end_ns=end, is_copy=False)
        for name, start, end in (("one", 0, 10), ("two", 5, 15), ("three", 10, 20))
    ]
    (plane,) = logs.planes_side_by_side({"measured": spans})
    lines = [[event.name for event in line.events] for line in plane.lines]
    assert lines == [["one", "three"], ["two"]]
