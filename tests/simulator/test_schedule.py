from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from placed_steps import HALF_EACH, diamond
from schedules import check_schedule

if TYPE_CHECKING:
    from placement_advisor.simulator.schedule import Schedule


def changed(schedule: Schedule, op: str, **times: Any) -> Schedule:
    runs = tuple(replace(run, **times) if run.op == op else run for run in schedule.runs)
    return replace(schedule, runs=runs)


@pytest.fixture
def schedule() -> Schedule:
    return diamond().simulate()


def refuse(schedule: Schedule, message: str) -> None:
    step = diamond()
    with pytest.raises(ValueError, match=message):
        check_schedule(schedule, step.graph, step.placement, step.cluster)


def test_a_true_schedule_passes(schedule: Schedule) -> None:
    step = diamond()
    check_schedule(schedule, step.graph, step.placement, step.cluster)


def test_an_op_that_never_ran_is_found(schedule: Schedule) -> None:
    refuse(replace(schedule, runs=schedule.runs[:-1]), "exactly once.*sink")


def test_an_op_that_ran_twice_is_found(schedule: Schedule) -> None:
    refuse(replace(schedule, runs=(*schedule.runs, schedule.runs[0])), "exactly once")


def test_an_op_on_another_device_than_planned_is_found(schedule: Schedule) -> None:
    runs = tuple(replace(run, device="a") for run in schedule.runs)
    refuse(replace(schedule, runs=runs), "'right' ran on 'a'")


def test_an_op_that_overlaps_another_is_found(schedule: Schedule) -> None:
    refuse(changed(schedule, "left", ready_ns=40, start_ns=40), "'left' overlaps")


def test_copy_work_that_overlaps_an_op_or_other_copy_work_is_found() -> None:
    step = diamond(work=HALF_EACH)
    schedule = step.simulate()
    check_schedule(schedule, step.graph, step.placement, step.cluster)
    # left runs from 105, when src is sent.
    early = changed(schedule, "left", start_ns=104)
    with pytest.raises(ValueError, match="'left' overlaps another op or copy on 'a'"):
        check_schedule(early, step.graph, step.placement, step.cluster)
    forth, back = schedule.transfers
    long = replace(schedule, transfers=(forth, replace(back, receive_work_ns=200, held_ns=-145)))
    with pytest.raises(ValueError, match="'receiving right' overlaps"):
        check_schedule(long, step.graph, step.placement, step.cluster)


def test_a_tensor_that_was_there_before_it_crossed_is_found(schedule: Schedule) -> None:
    first = replace(schedule.transfers[0], held_ns=111)
    refuse(replace(schedule, transfers=(first, *schedule.transfers[1:])), "before it crossed")


def test_an_op_that_started_before_it_was_ready_is_found(schedule: Schedule) -> None:
    refuse(changed(schedule, "sink", ready_ns=371), "'sink' started before it was ready")


def test_an_op_that_did_not_wait_for_a_transfer_is_found(schedule: Schedule) -> None:
    refuse(changed(schedule, "right", ready_ns=150), "'right' did not wait for 'src'")


def test_a_transfer_that_is_missing_is_found(schedule: Schedule) -> None:
    refuse(replace(schedule, transfers=schedule.transfers[:1]), "'right':0 never reached 'a'")


def test_a_transfer_made_twice_is_found(schedule: Schedule) -> None:
    refuse(replace(schedule, transfers=schedule.transfers * 2), "twice")


def test_a_transfer_that_left_too_early_is_found(schedule: Schedule) -> None:
    first = replace(schedule.transfers[0], start_ns=49)
    refuse(replace(schedule, transfers=(first, *schedule.transfers[1:])), "before it was there")


def test_a_transfer_that_nobody_reads_is_found(schedule: Schedule) -> None:
    idle = replace(schedule.transfers[0], port=1)
    refuse(replace(schedule, transfers=(*schedule.transfers, idle)), "nobody reads")


def test_transfers_at_the_same_moment_share_the_time_of_their_link(schedule: Schedule) -> None:
    doubled = replace(schedule, transfers=schedule.transfers * 2)
    assert (doubled.transfer_ns, doubled.transfer_count, doubled.carried.amount) == (220, 4, 400)
