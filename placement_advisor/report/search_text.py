"""A search's result as text: the verdict, what each device has to do, and what the bound means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.analysis.tables import one_line
from placement_advisor.report.trace_summary import aligned, fact
from placement_advisor.solvers.effort import Stop
from placement_advisor.solvers.search_result import Objective
from placement_advisor.solvers.throughput.loads import device_loads
from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.solvers.search_result import Searched

_WHY_STOPPED = {
    Stop.EFFORT: "the effort was used up; more may find better: --effort",
    Stop.CLOCK: "the time limit cut it, so another run may differ",
    Stop.SIZE: "the graph is too large for a proof",
    Stop.SOLVER: "the solver contradicted what is known, so that its proof does not count",
}


def render_search(searched: Searched) -> str:
    """Return the text."""
    parts = [[_verdict(searched)], list(_facts(searched)), list(_devices(searched))]
    return "\n\n".join("\n".join(map(str.rstrip, part)) for part in parts) + "\n"


def _verdict(searched: Searched) -> str:
    what = "one step takes"
    if searched.objective is Objective.THROUGHPUT:
        kind = "contiguous" if searched.contiguous else "any"
        what = f"the fullest device of a pipeline ({kind} placement) works"
    value = f"{_time(searched, searched.found.objective_value)} simulated"
    if searched.found.is_proven:
        proved = "proved for assumed costs" if searched.in_ns else "proved"
        return f"{what} {value}: {proved}, no such placement is better"
    gap = 1 - searched.found.lower_bound / searched.found.objective_value
    return f"{what} {value}: the best found; at most {gap * 100:.1f} % less may be possible"


def _facts(searched: Searched) -> Iterator[str]:
    used = len(set(searched.found.device_of.values()))
    yield fact("graph", one_line(f"{searched.graph_file}: {len(searched.problem.ops)} ops"))
    yield fact("machine", one_line(f"{searched.machine}; {used} used"))
    costs = (
        "assumed, from the devices' figures"
        if searched.in_ns
        else "the file's, in its own unit of time"
    )
    yield fact("costs", costs)
    bound = _time(searched, searched.found.lower_bound)
    yield fact("bound", f"{bound}: no such placement of these ops takes less, under these costs")
    if searched.found.stopped_by is not Stop.PROOF:
        yield fact("stopped", _WHY_STOPPED[searched.found.stopped_by])
    spent = "" if searched.found.units is None else f", {searched.found.units:.1f} units of effort"
    yield fact("search", f"{searched.seconds:.1f} s{spent}, seed {searched.effort.seed}")


def _devices(searched: Searched) -> Iterator[str]:
    problem = searched.problem
    # Within one step copies overlap with ops and with each other, so that their sum says little.
    is_pipeline = searched.objective is Objective.THROUGHPUT
    head = ("compute", "memory", "ops", "device")
    rows = [("load", "copies", *head) if is_pipeline else head]
    device_of = [searched.found.device_of[op] for op in problem.ops]
    for name, load in device_loads(problem, device_of).items():
        ops = device_of.count(name)
        row = (_time(searched, load.work), format_bytes(load.held_bytes), str(ops), one_line(name))
        sums = (_time(searched, load.total), _time(searched, load.copies))
        rows.append((*sums, *row) if is_pipeline else row)
    yield from aligned(rows)


def _time(searched: Searched, value: float) -> str:
    return format_ns(value) if searched.in_ns else f"{value:.6g}"
