from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sample_analysis import US, sample, unmeasured
from simulated_steps import towers

from placement_advisor.files.log_files import profile_run
from placement_advisor.measurement.measurement import Span
from placement_advisor.profile.xspace.xplane import Plane, read_planes
from placement_advisor.report.tensorboard.profile_runs import (
    planes_side_by_side,
    write_profile_runs,
)

if TYPE_CHECKING:
    from pathlib import Path


def planes_of(log: Path, candidate: str, which: str) -> dict[str, Plane]:
    path = log / profile_run(candidate, which) / f"{which}.xplane.pb"
    return {plane.name: plane for plane in read_planes(path)}


def runs_in(log: Path) -> set[str]:
    return {str(path.relative_to(log)) for path in log.glob("runs/*/plugins/profile/*")}


def test_a_simulated_step_has_a_plane_per_device_with_ops_and_copies(tmp_path: Path) -> None:
    write_profile_runs(sample(), tmp_path)
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


def test_a_copy_of_unknown_size_states_none(tmp_path: Path) -> None:
    candidate = replace(sample().candidates[1], predicted=towers().schedule)
    write_profile_runs(replace(sample(), candidates=(candidate,)), tmp_path)
    plane = planes_of(tmp_path, "towers", "simulated")["/device:GPU:1 GPU:1"]
    (event,) = plane.lines[2].events
    assert (event.name, event.stats["memcpy_details"]) == ("MEMCPYDtoD item", "dest:0 async:1")


def test_both_steps_stand_under_one_another_lane_by_lane(tmp_path: Path) -> None:
    write_profile_runs(sample(), tmp_path)
    assert list(planes_of(tmp_path, "towers", "both")) == [
        f"/device:CUSTOM:{which} {lane}"
        for lane in ("worker:0", "worker:1", "worker:0 → worker:1", "worker:1 → worker:0")
        for which in ("simulated", "measured")
    ]


def test_the_runs_of_a_candidate_that_ran_lie_together(tmp_path: Path) -> None:
    write_profile_runs(sample(), tmp_path)
    assert runs_in(tmp_path) == {
        f"runs/{name}/plugins/profile/{which}"
        for name in ("single", "towers")  # `alternating` crashed.
        for which in ("simulated", "both")
    }


def test_where_nothing_ran_each_candidate_has_a_simulated_run_alone(tmp_path: Path) -> None:
    write_profile_runs(unmeasured(), tmp_path)
    assert runs_in(tmp_path) == {
        f"runs/{name}/plugins/profile/simulated" for name in ("single", "towers", "alternating")
    }


def test_what_overlaps_stands_on_lines_of_its_own() -> None:
    spans = [
        Span(lane="a", name=name, start_ns=start, end_ns=end, is_copy=False)
        for name, start, end in (("one", 0, 10), ("two", 5, 15), ("three", 10, 20))
    ]
    (plane,) = planes_side_by_side({"measured": spans})
    assert [[event.name for event in line.events] for line in plane.lines] == [
        ["one", "three"],
        ["two"],
    ]
