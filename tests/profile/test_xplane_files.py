"""XSpace files: what is written is read back, and what cannot be read is named."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_profiles import EPOCH_NS, read_planes

from placement_advisor.errors import AdvisorError
from placement_advisor.profile import xplane_schema
from placement_advisor.profile.saved_profiles import keep_profiles
from placement_advisor.profile.xplane import Event, Line, Plane, copy_counted_from, write_planes


def task_plane(start_ns):
    return Plane(name="Task Environment", stats={"profile_start_time": start_ns})


def raw_space(timestamp_ns, *, with_task_plane):
    """One event, 2.5 ns after the line's timestamp and 3.6 ns long."""
    space = xplane_schema.new_space()
    plane = space.planes.add(name="/host:CPU")
    plane.event_metadata[7].name = "_Send"
    plane.stat_metadata[1].name = "from"
    plane.stat_metadata[2].name = "adam/Mul_1"
    event = plane.lines.add(timestamp_ns=timestamp_ns).events.add(
        metadata_id=7, offset_ps=2_500, duration_ps=3_600
    )
    event.stats.add(metadata_id=1, ref_value=2)
    if with_task_plane:
        task = space.planes.add(name="Task Environment")
        task.stat_metadata[1].name = "profile_start_time"
        task.stats.add(metadata_id=1, uint64_value=EPOCH_NS)
    return space


@pytest.mark.parametrize(
    ("timestamp_ns", "has_task", "start_ns"),
    [(40, True, EPOCH_NS + 42), (EPOCH_NS + 40, True, EPOCH_NS + 42), (40, False, 42)],
    ids=["relative to the profile's start", "absolute already", "no start known"],
)
def test_times_are_absolute_and_references_are_strings(tmp_path, timestamp_ns, has_task, start_ns):
    path = tmp_path / "vm.xplane.pb"
    space = raw_space(timestamp_ns, with_task_plane=has_task)
    path.write_bytes(space.SerializeToString())
    event = read_planes(path)[0].lines[0].events[0]
    # 2.5 ns to 6.1 ns: cut off to 2 and 6.
    assert event == Event(
        name="_Send", start_ns=start_ns, duration_ns=4, stats={"from": "adam/Mul_1"}
    )
    assert event.end_ns == start_ns + 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xff\xff not protobuf", r"bad\.xplane\.pb is corrupt"),
        (b"", r"bad\.xplane\.pb is corrupt: it holds no plane"),
        (
            raw_space(0, with_task_plane=True).SerializeToString()[:-5],
            r"bad\.xplane\.pb is corrupt",
        ),
    ],
    ids=["garbage", "empty", "cut short"],
)
def test_a_corrupt_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(AdvisorError, match=message):
        read_planes(path)


def test_a_missing_file_is_named_and_aggregated_events_are_left_out(tmp_path):
    path = tmp_path / "gone.xplane.pb"
    with pytest.raises(AdvisorError, match=r"cannot read .*gone\.xplane\.pb: No such file"):
        read_planes(path)
    space = raw_space(0, with_task_plane=False)
    space.planes[0].lines[0].events[0].num_occurrences = 5
    path.write_bytes(space.SerializeToString())
    assert read_planes(path)[0].lines[0].events == ()


names = st.text(st.characters(codec="utf-8"), max_size=8)
stats = st.dictionaries(
    names,
    st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | names | st.binary(max_size=4),
    max_size=3,
)
events = st.builds(
    Event,
    name=names,
    start_ns=st.integers(EPOCH_NS - 10**9, EPOCH_NS + 10**12),
    duration_ns=st.integers(0, 10**12),
    stats=stats,
)
lines = st.builds(
    Line, name=names, id=st.integers(-(2**63), 2**63 - 1), events=st.lists(events).map(tuple)
)
planes = st.builds(
    Plane,
    name=names.map(lambda name: f"/host:{name}"),
    lines=st.lists(lines, max_size=3).map(tuple),
    stats=stats,
)


@given(
    planes=st.lists(planes, min_size=1, max_size=3).map(tuple),
    task=st.just(()) | st.just((task_plane(EPOCH_NS),)),
)
def test_any_planes_are_read_as_they_were_written(tmp_path_factory, planes, task):
    path = tmp_path_factory.mktemp("profile") / "vm.xplane.pb"
    write_planes(path, planes + task)
    assert read_planes(path) == planes + task


def test_lines_are_written_relative_to_the_start_of_profiling(tmp_path):
    path = tmp_path / "vm.xplane.pb"
    event = Event(name="train", start_ns=EPOCH_NS + 40, duration_ns=1)
    host = Plane(name="/host:CPU", lines=(Line(name="python", events=(event,)),))
    write_planes(path, [host, task_plane(EPOCH_NS)])
    space = xplane_schema.new_space()
    space.ParseFromString(path.read_bytes())
    assert space.planes[0].lines[0].timestamp_ns == 40


def test_the_first_file_ever_is_read_while_numba_compiles(tmp_path):
    """Frames that numba leaves behind refer to the file's bytes until they are collected."""
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(raw_space(0, with_task_plane=True).SerializeToString())
    program = (
        "import gc, sys, pathlib\n"
        "gc.disable()\n"
        "from placement_advisor.profile.steps import host_lines\n"
        "from placement_advisor.profile.xplane import space_file\n"
        "print(host_lines(space_file(pathlib.Path(sys.argv[1])))[0].events[0].name)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "nothing compiled yet")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stdout) == (0, "_Send\n"), ran.stderr


def test_the_schema_is_that_of_the_installed_tensorflow():
    spec = importlib.util.find_spec("tensorflow")
    # Loaded by its place, as importing it by name would import all of TensorFlow.
    source = Path(spec.origin).parent / "tsl/profiler/protobuf/xplane_pb2.py"
    module_spec = importlib.util.spec_from_file_location("installed_xplane_pb2", source)
    theirs = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(theirs)
    assert _shape(xplane_schema.new_space().DESCRIPTOR) == _shape(theirs.XSpace.DESCRIPTOR)


def _shape(message):
    """Fields of a message and of those within it: number, type, repeated, in a oneof."""
    return {
        field.name: (
            field.number,
            field.type,
            field.default_value == [],  # It is repeated.
            field.containing_oneof is not None,
            field.message_type and _shape(field.message_type),
        )
        for field in message.fields
    }


MS = 1_000_000
BEGIN_NS = 1_790_000_000_000_000_000
# XProf leaves out the first and the last one of more than five.
STEPS = 8
# How long before the first step the first profiler began: XProf took one step for another.
EARLIEST_MS = 401
HOST = "/host:CPU"


def at(time_ms, name, length_ms, **stats):
    """Return an event so long after the profile began."""
    start_ns = BEGIN_NS + time_ms * MS
    return Event(name=name, start_ns=start_ns, duration_ns=length_ms * MS, stats=stats)


def marks():
    """Return steps of 10, 11, ... ms, one each 100 ms."""
    return tuple(at(100 * i, "train", 10 + i, step_num=i, _r=1) for i in range(STEPS))


def parts(device):
    """Return what a worker does for each step, launched on one thread and computed on another."""
    launched, computed = [], []
    for i in range(STEPS):
        number = 1_000 * (device + 1) + i
        launched.append(at(100 * i + 1, "RunGraph", 1, _r=1, _pt=2, _p=number))
        computed.append(at(100 * i + 2, "ExecutorState::Process", 6, _ct=2, _c=number))
        computed.append(at(100 * i + 3, "tower/MatMul:MatMul", 4 + device))
    return (
        Line(name="python", id=1, events=tuple(launched)),
        Line(name="tf_Compute/1", id=2, events=tuple(computed)),
    )


def written(folder, process, *lines, early_ms=1):
    """Write the profile of a process, whose times count from when its profiler began."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{process}.pb"
    facts = Plane(name="Task Environment", stats={"profile_start_time": BEGIN_NS - early_ms * MS})
    write_planes(path, (Plane(name=HOST, lines=lines), facts))
    return path


@pytest.fixture
def files(tmp_path):
    raw = tmp_path / "raw"
    # What XProf takes for computing: without it a step would not count.
    asked = [at(100 * i + 1, f"RunStep/Client:{i}", 8) for i in range(STEPS)]
    in_order = sorted([*marks(), *asked], key=lambda event: event.start_ns)
    return {
        "worker:0": written(raw, "0", *parts(0), early_ms=EARLIEST_MS),
        "worker:1": written(raw, "1", *parts(1)),
        "client": written(raw, "c", Line(name="python", id=1, events=tuple(in_order))),
    }


def overview(folder):
    """Return XProf's overview page of a run."""
    from xprof.convert import raw_to_tool_data

    paths = [str(path) for path in sorted(folder.glob("*.xplane.pb"))]
    data, _ = raw_to_tool_data.xspace_to_tool_data(paths, "overview_page", {})
    return json.loads(data)


def step_times_ms(folder):
    steps = next(t for t in overview(folder) if t.get("cols", [{}])[0].get("id") == "stepnum")
    return [row["c"][-1]["v"] for row in steps["rows"]]


def test_xprof_counts_the_steps_of_all_processes_together_and_nothing_else_changes(files, tmp_path):
    run = tmp_path / "run"
    keep_profiles(files, run)
    names = {path.name.partition(".")[0] for path in run.iterdir()}
    assert names == {"worker-0", "worker-1", "client"}
    # It leaves out the first and the last one, which may be recorded in part.
    assert step_times_ms(run) == pytest.approx([11, 12, 13, 14, 15, 16])
    assert "No step marker" not in json.dumps(overview(run))

    host, facts = read_planes(run / "worker-1.xplane.pb")
    before, facts_before = read_planes(files["worker:1"])
    *own, added = host.lines
    assert (tuple(own), facts.lines) == (before.lines, facts_before.lines)
    assert added.name == "Steps of the client"
    added_marks = [replace(event, stats={}) for event in added.events]
    assert added_marks == [replace(event, stats={}) for event in marks()]
    stats = [{"_r": 1, "_pt": 2, "_p": 2_000 + i, "step_num": i} for i in range(STEPS)]
    assert [event.stats for event in added.events] == stats
    assert read_planes(run / "client.xplane.pb")[0] == read_planes(files["client"])[0]
    # XProf compares times of hosts as they are counted from where each profile began.
    assert {
        xplane_schema.profile_start_ns(read_planes(path)) for path in run.glob("*.xplane.pb")
    } == {BEGIN_NS - EARLIEST_MS * MS}


def kept(files, folder, worker, *lines):
    """Keep the profiles with other lines of one worker; return its file as it was, and as kept."""
    changed = written(folder / "raw", "changed", *lines)
    keep_profiles({**files, worker: changed}, folder / "run")
    path = folder / "run" / f"{worker.replace(':', '-')}.xplane.pb"
    return changed, path


def test_a_worker_with_nothing_to_do_has_no_profile(files, tmp_path):
    _, path = kept(files, tmp_path, "worker:1")
    assert not path.exists()
    assert step_times_ms(tmp_path / "run") == pytest.approx([11, 12, 13, 14, 15, 16])


def test_a_process_that_marks_its_steps_is_left_as_it_is(files, tmp_path):
    own = Line(name="python", id=3, events=marks())
    changed, path = kept(files, tmp_path, "worker:0", *parts(0), own)
    assert read_planes(path)[0] == read_planes(changed)[0]


def test_a_step_without_a_part_of_a_worker_is_marked_all_the_same(files, tmp_path):
    launched, ran = parts(0)
    late = replace(launched, events=launched.events[2:]), replace(ran, events=ran.events[4:])
    _, path = kept(files, tmp_path, "worker:0", *late)
    marked = read_planes(path)[0].lines[-1].events
    assert ["_p" in event.stats for event in marked] == [False] * 2 + [True] * 6


def test_a_step_counts_whose_part_was_not_seen_being_launched(files, tmp_path):
    launched, computed = parts(0)
    kept(files, tmp_path, "worker:0", replace(launched, events=launched.events[:-1]), computed)
    assert step_times_ms(tmp_path / "run") == pytest.approx([11, 12, 13, 14, 15, 16])


def test_profiles_of_other_machines_are_put_onto_the_commands_clock(files, tmp_path):
    skew_ns = 3_600_000_000_123
    skewed = tmp_path / "raw" / "skewed.pb"
    began_ns = xplane_schema.profile_start_ns(read_planes(files["worker:1"]))
    copy_counted_from(files["worker:1"], skewed, began_ns + skew_ns, -skew_ns, {})
    here = read_planes(files["worker:1"])
    assert read_planes(skewed, skew_ns) == here != read_planes(skewed)
    keep_profiles(files, tmp_path / "together")
    keep_profiles({**files, "worker:1": skewed}, tmp_path / "apart", {"worker:1": skew_ns})
    for path in (tmp_path / "together").iterdir():
        assert read_planes(tmp_path / "apart" / path.name) == read_planes(path)
    assert len(list((tmp_path / "apart").iterdir())) == 3
