"""A search's result as text: the verdict, what each device has to do, and what the bound means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.document import Facts, Table, as_text
from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.results.search import Search

_WHY_STOPPED = {
    "effort": "the effort was used up; more may find better: --effort",
    "clock": "the time limit cut it, so another run may differ",
}


def render_search(search: Search) -> str:
    """Return the text."""
    return as_text([_verdict(search), Facts(_facts(search)), _devices(search)])


def _verdict(search: Search) -> str:
    value = f"one step takes {format_ns(search.step_ns)} simulated"
    if search.proven:
        return f"{value}: proved for assumed costs, no such placement is better"
    gap = 1 - search.lower_bound_ns / search.step_ns
    return f"{value}: the best found; at most {gap * 100:.1f} % less may be possible"


def _facts(search: Search) -> Iterator[tuple[str, str]]:
    used = len(set(search.device_of.values()))
    yield "graph", f"{search.graph_file}: {search.ops} ops"
    yield "machine", f"{search.machine}; {used} used"
    yield "costs", "assumed, from the devices' figures"
    bound = format_ns(search.lower_bound_ns)
    yield "bound", f"{bound}: no such placement of these ops takes less, under these costs"
    if search.stopped_by in _WHY_STOPPED:
        yield "stopped", _WHY_STOPPED[search.stopped_by]
    spent = f"{search.effort_units_spent:.1f} units of effort"
    yield "search", f"{search.seconds:.1f} s, {spent}, seed {search.seed}"


def _devices(search: Search) -> Table:
    rows = [
        [format_ns(each.work_ns), format_bytes(each.held_bytes), str(each.ops), each.name]
        for each in search.devices
    ]
    return Table(["compute", "memory", "ops", "device"], rows, names=(-1,))
