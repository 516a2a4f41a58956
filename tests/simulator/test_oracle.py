"""The compiled event loop against its plain twin, to the last nanosecond."""

from __future__ import annotations

import pytest
from drawn_cases import cases
from hypothesis import given
from oracle import Oracle
from placed_steps import PlacedStep, placed_steps


@pytest.mark.parametrize("contention", [True, False])
@given(step=placed_steps(hosts=True))
@cases(300)
def test_the_compiled_schedule_is_that_of_the_plain_twin(
    step: PlacedStep, contention: bool
) -> None:
    oracle = Oracle(step, contention=contention)
    schedule = step.simulate(contention=contention)
    assert schedule.runs == oracle.runs
    assert schedule.transfers == oracle.transfers
    assert schedule.step_ns == oracle.step_ns
    assert step.simulator(contention=contention).step_ns(step.placement) == oracle.step_ns


@given(placed_steps(max_ops=40, hosts=True))
@cases(60)
def test_so_is_that_of_a_larger_step(step: PlacedStep) -> None:
    oracle = Oracle(step)
    schedule = step.simulate()
    assert (schedule.runs, schedule.transfers) == (oracle.runs, oracle.transfers)
