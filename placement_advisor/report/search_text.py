"""What solvers found and proved, as text: a placement with its bound, a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostSource
from placement_advisor.report.document import Facts, Table, as_text
from placement_advisor.solvers.bounds.bound_in_words import argument_text
from placement_advisor.solvers.effort import Stop
from placement_advisor.solvers.search_result import Objective
from placement_advisor.solvers.throughput.loads import device_loads
from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.solvers.certificate import Certificate
    from placement_advisor.solvers.search_result import Searched

_WHY_STOPPED = {
    Stop.EFFORT: "the effort was used up; more may find better: --effort",
    Stop.CLOCK: "the time limit cut it, so another run may differ",
    Stop.SIZE: "the graph is too large for a proof",
    Stop.SOLVER: "the solver contradicted what is known, so that its proof does not count",
}

_COSTS = {
    CostSource.MEASURED: "costs of ops, links and starts that were measured on these devices",
    CostSource.RECORDED: "op times from a recorded profile, links assumed where it shows none",
    CostSource.ASSUMED: "assumed costs: no op and no link was measured",
}


def render_search(searched: Searched) -> str:
    """Return the text."""
    return as_text([_verdict(searched), Facts(_facts(searched)), _devices(searched)])


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


def _facts(searched: Searched) -> Iterator[tuple[str, str]]:
    used = len(set(searched.found.device_of.values()))
    yield "graph", f"{searched.graph_file}: {len(searched.problem.ops)} ops"
    yield "machine", f"{searched.machine}; {used} used"
    costs = (
        "assumed, from the devices' figures"
        if searched.in_ns
        else "the file's, in its own unit of time"
    )
    yield "costs", costs
    bound = _time(searched, searched.found.lower_bound)
    yield "bound", f"{bound}: no such placement of these ops takes less, under these costs"
    if searched.found.stopped_by is not Stop.PROOF:
        yield "stopped", _WHY_STOPPED[searched.found.stopped_by]
    spent = "" if searched.found.units is None else f", {searched.found.units:.1f} units of effort"
    yield "search", f"{searched.seconds:.1f} s{spent}, seed {searched.effort.seed}"


def _devices(searched: Searched) -> Table:
    problem = searched.problem
    # Within one step copies overlap with ops and with each other, so that their sum says little.
    is_pipeline = searched.objective is Objective.THROUGHPUT
    columns = [*(("load", "copies") if is_pipeline else ()), "compute", "memory", "ops", "device"]
    device_of = [searched.found.device_of[op] for op in problem.ops]
    rows = []
    for name, load in device_loads(problem, device_of).items():
        sums = [_time(searched, load.total), _time(searched, load.copies)] if is_pipeline else []
        row = [_time(searched, load.work), format_bytes(load.held_bytes)]
        rows.append([*sums, *row, str(device_of.count(name)), name])
    return Table(columns, rows, names=(-1,))


def _time(searched: Searched, value: float) -> str:
    return format_ns(value) if searched.in_ns else f"{value:.6g}"


def render_certificate(told: Certificate) -> str:
    """Return the text, of a certificate that has been checked."""
    bound = told.bound
    verdict = (
        f"verified for {told.source} costs: no placement of these ops takes less than "
        f"{format_ns(bound.step_ns)} a step"
    )
    facts = [
        ("graph", told.graph_fingerprint),
        ("devices", ", ".join(device.name for device in told.cluster.devices)),
        *(("one device", f"{d}: at least {format_ns(ns)}") for d, ns in bound.alone_ns.items()),
        ("several", f"at least {format_ns(bound.split_ns)}"),
        *(("", argument_text(each)) for each in bound.arguments),
        ("covers", "these ops; splits of the batch or of a tensor make others"),
        ("under", f"{_COSTS[told.source]}, as the certificate holds them; for no others"),
    ]
    return as_text([verdict, Facts(facts)])
