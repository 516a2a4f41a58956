from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

from placement_advisor import clock
from placement_advisor.clock import Clock

if TYPE_CHECKING:
    import pytest


def test_a_stage_lasts_until_the_next_begins_and_may_go_on_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([100, 107, 110, 150, 151])
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: next(readings)))
    timing = Clock("load")
    timing.begin("trace")
    timing.begin("load")
    timing.begin("run")
    # The reading after the last is that of asking: what is under way counts up to now.
    assert timing.timings_ns() == {"load": 7 + 40, "trace": 3, "run": 1}


def test_asking_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = count()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter_ns=lambda: next(readings)))
    timing = Clock("load")
    timing.timings_ns()
    timing.begin("run")
    assert timing.timings_ns() == {"load": 2, "run": 1}
