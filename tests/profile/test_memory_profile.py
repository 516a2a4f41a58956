"""Memory of profiled steps, on allocations small enough to add up by hand."""

from __future__ import annotations

import pytest

from placement_advisor.profile.steps import RecordedStep, StepWindows
from placement_advisor.profile.worker_steps import measured_memory
from placement_advisor.profile.xplane import Event, Line


def change(at_ns: int, size_bytes: int) -> Event:
    """Return the event of a piece that was taken, or given back if its size is negative."""
    name = "MemoryAllocation" if size_bytes > 0 else "MemoryDeallocation"
    # The piece that is found can be larger than what was asked for.
    stats = {"requested_bytes": abs(size_bytes), "allocation_bytes": 2 * abs(size_bytes)}
    return Event(name=name, start_ns=at_ns, duration_ns=0, stats=stats)


ONE_STEP = [(0, 99)]


@pytest.mark.parametrize(
    ("threads", "steps", "peaks"),
    [
        pytest.param(
            [[(10, 100), (20, 30), (30, -100), (40, 50), (50, -30), (60, -50)]],
            ONE_STEP,
            (130,),
            id="taken-and-not-given-back",
        ),
        pytest.param(
            [[(10, 100), (30, 60)], [(20, -100), (40, -60)]], ONE_STEP, (100,), id="several-threads"
        ),
        pytest.param(
            [[(10, 128), (55, -128), (110, 128), (155, -128)]],
            [(0, 50), (100, 150)],
            (128, 128),
            id="given-back-after-the-step",
        ),
        # An update takes a new piece for its variable and gives the old one back.
        pytest.param([[(10, 500), (20, -500)]], ONE_STEP, (500,), id="held-before-the-profile"),
        pytest.param(
            [[(10, 10), (20, -10), (110, 900), (120, -900), (210, 70), (220, -70)]],
            [(0, 50), (100, 150), (200, 250)],
            (10, 900, 70),
            id="each-step-by-itself",
        ),
        pytest.param([[(10, 100)]], [(20, 30)], (), id="nothing-within-a-step"),
        pytest.param([], [(20, 30)], (), id="nothing"),
    ],
)
def test_a_step_holds_at_most_what_it_took_and_had_not_given_back(
    threads: list[list[tuple[int, int]]], steps: list[tuple[int, int]], peaks: tuple[int, ...]
) -> None:
    lines = [Line(name="1", events=tuple(change(*each) for each in thread)) for thread in threads]
    windows = StepWindows([RecordedStep(start_ns=start, end_ns=end) for start, end in steps])
    assert measured_memory(lines, windows) == peaks
