"""The compiled event loop against its plain twin, to the last nanosecond."""

from __future__ import annotations

from drawn_cases import cases
from hypothesis import given
from oracle import Oracle
from placed_steps import PlacedStep, placed_steps


@given(step=placed_steps(hosts=True))
@cases(300)
def test_the_compiled_schedule_is_that_of_the_plain_twin(step: PlacedStep) -> None:
    oracle = Oracle(step)
    schedule = step.simulate()
    assert schedule.runs == oracle.runs
    assert schedule.transfers == oracle.transfers
    assert schedule.step_ns == oracle.step_ns
    assert step.simulator().step_ns(step.placement) == oracle.step_ns


@given(placed_steps(max_ops=40, hosts=True))
@cases(60)
def test_so_is_that_of_a_larger_step(step: PlacedStep) -> None:
    oracle = Oracle(step)
    schedule = step.simulate()
    assert (schedule.runs, schedule.transfers) == (oracle.runs, oracle.transfers)
