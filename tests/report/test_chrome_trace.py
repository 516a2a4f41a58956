from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from simulated_steps import towers

from placement_advisor.report.steps import chrome_trace

if TYPE_CHECKING:
    from placement_advisor.simulator.simulator import Simulation

Event = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden"


def events(told: Simulation, phase: str) -> list[Event]:
    trace = chrome_trace(told.graph, told.schedule)
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def rows(told: Simulation) -> dict[tuple[int, int], str]:
    """Return what each row is called: process, then thread."""
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events(told, "M")}
    return {
        (pid, tid): f"{names['process_name', pid, 0]}/{name}"
        for (what, pid, tid), name in names.items()
        if what == "thread_name"
    }


def slices(told: Simulation) -> dict[str, list[Event]]:
    """Return the slices of each row, by its name, in order."""
    named = rows(told)
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in sorted(events(told, "X"), key=lambda event: event["ts"]):
        found[named[event["pid"], event["tid"]]].append(event)
    return dict(found)


def worked() -> Simulation:
    """The towers, where the sender of each copy works 5 ns for it; the size of one is unknown."""
    told = towers()
    copies = tuple(replace(copy, send_work_ns=5) for copy in told.schedule.transfers)
    return replace(told, schedule=replace(told.schedule, transfers=copies))


@pytest.mark.parametrize(("name", "told"), [("sample", towers()), ("worked", worked())])
def test_every_device_and_link_has_its_rows_in_the_golden_file(name: str, told: Simulation) -> None:
    golden = (GOLDEN / f"chrome_trace_{name}.json").read_text(encoding="utf-8")
    assert chrome_trace(told.graph, told.schedule) == json.loads(golden)


def test_arrows_lead_from_a_producer_over_the_copy_to_its_readers() -> None:
    told = towers()
    named = rows(told)
    arrows: defaultdict[int, list[Event]] = defaultdict(list)
    for phase in "stf":
        for event in events(told, phase):
            arrows[event["id"]].append(event)
    ways = [[named[e["pid"], e["tid"]] for e in arrow] for arrow in arrows.values()]
    assert ways == [
        ["CPU:0/ops", "links/CPU:0 → GPU:0", "GPU:0/ops"],
        ["CPU:0/ops", "links/CPU:0 → GPU:1", "GPU:1/ops"],
        ["GPU:1/ops", "links/GPU:1 → GPU:0", "GPU:0/ops"],
        ["GPU:0/ops", "links/GPU:0 → GPU:1", "GPU:1/ops"],
    ]
    begins = {(event["pid"], event["tid"], event["ts"]) for event in events(told, "X")}
    for arrow in arrows.values():
        assert all((e["pid"], e["tid"], e["ts"]) in begins for e in arrow)
        assert all(before["ts"] <= after["ts"] for before, after in pairwise(arrow))


def test_copies_that_overlap_on_one_link_have_a_row_each() -> None:
    told = towers()
    (first, *_) = told.schedule.transfers
    second = replace(first, producer="ids", start_ns=first.start_ns + 1, end_ns=first.end_ns + 1)
    third = replace(first, producer="ids", port=1, start_ns=first.end_ns, end_ns=first.end_ns + 5)
    schedule = replace(told.schedule, transfers=(first, second, third))
    found = slices(replace(told, schedule=schedule))
    assert [event["name"] for event in found["links/CPU:0 → GPU:0"]] == ["lookup:0", "ids:1"]
    assert [event["name"] for event in found["links/CPU:0 → GPU:0 (2)"]] == ["ids:0"]


def test_equal_steps_give_equal_bytes_and_no_row_overlaps() -> None:
    told = towers()
    first, second = (
        json.dumps(chrome_trace(each.graph, each.schedule), allow_nan=False)
        for each in (told, towers())
    )
    assert first == second
    for row in slices(told).values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(row))
