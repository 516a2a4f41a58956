"""Profiles of workers as XProf's own converter reads them, and as they were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from placement_advisor.profile.saved_profiles import keep_profiles
from placement_advisor.profile.xplane import (
    Event,
    Line,
    Plane,
    copy_set_back,
    read_planes,
    set_back,
    write_planes,
)

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
BEGIN_NS = 1_790_000_000_000_000_000
# XProf leaves out the first and the last one of more than five.
STEPS = 8
HOST = "/host:CPU"


def at(time_ms: int, name: str, length_ms: int, **stats: int) -> Event:
    """Return an event so long after the profile began."""
    start_ns = BEGIN_NS + time_ms * MS
    return Event(name=name, start_ns=start_ns, duration_ns=length_ms * MS, stats=stats)


def marks() -> tuple[Event, ...]:
    """Return steps of 10, 11, ... ms, one each 100 ms."""
    return tuple(at(100 * i, "train", 10 + i, step_num=i, _r=1) for i in range(STEPS))


def parts(device: int) -> tuple[Line, ...]:
    """Return what a worker does for each step, launched on one thread and computed on another."""
    ids = [1_000 * (device + 1) + i for i in range(STEPS)]
    launched = [at(100 * i + 1, "RunGraph", 1, _r=1, _pt=2, _p=ids[i]) for i in range(STEPS)]
    computed = [
        event
        for i in range(STEPS)
        for event in (
            at(100 * i + 2, "ExecutorState::Process", 6, _ct=2, _c=ids[i]),
            at(100 * i + 3, "tower/MatMul:MatMul", 4 + device),
        )
    ]
    return (
        Line(name="python", id=1, events=tuple(launched)),
        Line(name="tf_Compute/1", id=2, events=tuple(computed)),
    )


def written(folder: Path, process: str, *lines: Line) -> Path:
    """Write the profile of a process, whose times count from when its profiler began."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{process}.pb"
    facts = Plane(name="Task Environment", stats={"profile_start_time": BEGIN_NS - MS})
    write_planes(path, (Plane(name=HOST, lines=lines), facts))
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    raw = tmp_path / "raw"
    # What XProf takes for computing: without it a step would not count.
    asked = [at(100 * i + 1, f"RunStep/Client:{i}", 8) for i in range(STEPS)]
    in_order = sorted([*marks(), *asked], key=lambda event: event.start_ns)
    return {
        "worker:0": written(raw, "0", *parts(0)),
        "worker:1": written(raw, "1", *parts(1)),
        "client": written(raw, "c", Line(name="python", id=1, events=tuple(in_order))),
    }


def overview(folder: Path) -> Any:
    """Return XProf's overview page of a run."""
    from xprof.convert import raw_to_tool_data

    paths = [str(path) for path in sorted(folder.glob("*.xplane.pb"))]
    data, _ = raw_to_tool_data.xspace_to_tool_data(paths, "overview_page", {})
    return json.loads(data)


def step_times_ms(folder: Path) -> list[float]:
    steps = next(t for t in overview(folder) if t.get("cols", [{}])[0].get("id") == "stepnum")
    return [row["c"][-1]["v"] for row in steps["rows"]]


def test_xprof_counts_the_steps_of_all_processes_together(
    files: dict[str, Path], tmp_path: Path
) -> None:
    keep_profiles(files, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "worker-0.xplane.pb",
        "worker-1.xplane.pb",
        "client.xplane.pb",
    }
    # It leaves out the first and the last one, which may be recorded in part.
    assert step_times_ms(tmp_path / "run") == pytest.approx([11, 12, 13, 14, 15, 16])
    assert "No step marker" not in json.dumps(overview(tmp_path / "run"))


def test_nothing_else_of_a_profile_is_changed(files: dict[str, Path], tmp_path: Path) -> None:
    keep_profiles(files, tmp_path / "run")
    host, facts = read_planes(tmp_path / "run" / "worker-1.xplane.pb")
    before, facts_before = read_planes(files["worker:1"])
    assert host.lines[:-1] == before.lines
    assert facts == facts_before
    assert host.lines[-1].name == "Steps of the client"
    assert [(e.name, e.start_ns, e.duration_ns) for e in host.lines[-1].events] == [
        (e.name, e.start_ns, e.duration_ns) for e in marks()
    ]
    assert [e.stats["_p"] for e in host.lines[-1].events] == [2_000 + i for i in range(STEPS)]
    assert (tmp_path / "run/client.xplane.pb").read_bytes() == files["client"].read_bytes()


def test_a_worker_with_nothing_to_do_has_no_profile(files: dict[str, Path], tmp_path: Path) -> None:
    idle = written(tmp_path / "raw", "idle")
    keep_profiles({**files, "worker:1": idle}, tmp_path / "run")
    assert not (tmp_path / "run" / "worker-1.xplane.pb").exists()
    assert step_times_ms(tmp_path / "run") == pytest.approx([11, 12, 13, 14, 15, 16])


def test_a_process_that_marks_its_steps_is_left_as_it_is(
    files: dict[str, Path], tmp_path: Path
) -> None:
    own = Line(name="python", id=3, events=marks())
    mirrored = {
        "worker:0": written(tmp_path / "raw", "m", *parts(0), own),
        "client": files["client"],
    }
    keep_profiles(mirrored, tmp_path / "run")
    kept = tmp_path / "run" / "worker-0.xplane.pb"
    assert kept.read_bytes() == mirrored["worker:0"].read_bytes()


def test_a_step_without_a_part_of_a_worker_is_marked_all_the_same(
    files: dict[str, Path], tmp_path: Path
) -> None:
    launched, computed = parts(0)
    late = (
        Line(name="python", id=1, events=launched.events[2:]),
        Line(name="tf_Compute/1", id=2, events=computed.events[4:]),
    )
    keep_profiles({**files, "worker:0": written(tmp_path / "raw", "late", *late)}, tmp_path / "run")
    host, _ = read_planes(tmp_path / "run" / "worker-0.xplane.pb")
    assert ["_p" in event.stats for event in host.lines[-1].events] == [False] * 2 + [True] * 6


def test_a_step_counts_whose_part_was_not_seen_being_launched(
    files: dict[str, Path], tmp_path: Path
) -> None:
    launched, computed = parts(0)
    busy = (Line(name="python", id=1, events=launched.events[:-1]), computed)
    keep_profiles({**files, "worker:0": written(tmp_path / "raw", "busy", *busy)}, tmp_path / "run")
    assert step_times_ms(tmp_path / "run") == pytest.approx([11, 12, 13, 14, 15, 16])


def test_profiles_of_other_machines_are_put_onto_the_commands_clock(
    files: dict[str, Path], tmp_path: Path
) -> None:
    skew_ns = 3_600_000_000_123
    skewed = tmp_path / "raw" / "skewed.pb"
    copy_set_back(files["worker:1"], skewed, -skew_ns)
    here, there = read_planes(files["worker:1"]), read_planes(skewed)
    assert there == set_back(here, -skew_ns) != here

    keep_profiles(files, tmp_path / "together")
    keep_profiles({**files, "worker:1": skewed}, tmp_path / "apart", {"worker:1": skew_ns})
    for path in (tmp_path / "together").iterdir():
        assert read_planes(tmp_path / "apart" / path.name) == read_planes(path)
    assert len(list((tmp_path / "apart").iterdir())) == 3
