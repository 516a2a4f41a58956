"""A machine that others keep busy: whoever times steps on it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement_advisor.machine import this_machine
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed, with_load
from placement_advisor.machine.this_machine import Cores, is_busy

FOUR_CORES = Cores(machine=4, allowed=4, physical=4, quota=None)


@pytest.mark.parametrize(
    ("load", "cores", "busy"),
    # Of four cores two may be busy, of two none; half a process is what clocks and cron take.
    [(0.4, 2, False), (0.5, 2, True), (2.4, 4, False), (2.5, 4, True), (3.0, 1, True)],
)
def test_a_load_is_too_much_where_it_takes_half_a_core_from_a_device(
    load: float, cores: int, busy: bool
) -> None:
    assert is_busy(load, cores, devices=2) is busy


def test_who_times_on_a_busy_machine_is_told_at_the_start_and_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(this_machine, "load_average", lambda: 6.18)
    monkeypatch.setattr(this_machine, "find_cores", lambda: FOUR_CORES)
    plan = plan_testbed(TestbedKind.LOGICAL_CPUS, 2)
    told: list[str] = []
    busy = with_load(plan, told.append)
    assert told == [f"warning: {warning}" for warning in busy.warnings]
    assert "other work keeps this machine busy: 6.2 processes" in told[0]
    # Who times nothing does not mind, nor who has cores enough.
    predicted = replace(plan, not_run="--no-run: no step was executed")
    assert with_load(predicted, told.append).warnings == ()
    monkeypatch.setattr(this_machine, "load_average", lambda: 2.1)
    assert with_load(plan, told.append) == plan
    assert len(told) == 1
