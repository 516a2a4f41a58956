from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from simulated_steps import towers

from placement_advisor.report.steps import chrome_trace

if TYPE_CHECKING:
    from placement_advisor.simulator.schedule import Transfer
    from placement_advisor.simulator.simulator import Simulation

GOLDEN = Path(__file__).parent / "golden"


def with_copies(*copies: Transfer) -> Simulation:
    told = towers()
    return replace(told, schedule=replace(told.schedule, transfers=copies))


COPIES = towers().schedule.transfers
FIRST = COPIES[0]
OVERLAPPING = (
    FIRST,
    replace(FIRST, producer="ids", start_ns=FIRST.start_ns + 1, end_ns=FIRST.end_ns + 1),
    replace(FIRST, producer="ids", port=1, start_ns=FIRST.end_ns, end_ns=FIRST.end_ns + 5),
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sample", towers()),
        # The sender of each copy works 5 ns for it; the size of one is unknown.
        ("worked", with_copies(*(replace(copy, send_work_ns=5) for copy in COPIES))),
        # Those that overlap on one link have a row each.
        ("overlapping", with_copies(*OVERLAPPING)),
    ],
)
def test_every_device_and_link_has_its_rows_in_the_golden_file(name: str, told: Simulation) -> None:
    golden = (GOLDEN / f"chrome_trace_{name}.json").read_text(encoding="utf-8")
    assert chrome_trace(told.graph, told.schedule) == json.loads(golden)
