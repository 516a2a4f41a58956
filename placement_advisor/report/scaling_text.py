"""What further devices of machines bring, as text: the answers first, then a table of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.machine_scaling import Excess, Scaling
from placement_advisor.report.analysis.figures import with_range
from placement_advisor.report.document import NOTHING, Section, Table, as_text
from placement_advisor.units import counted, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.machine_scaling import (
        HardwareComparison,
        Knee,
        MachineScaling,
        Ranked,
        ScaledStep,
    )
    from placement_advisor.report.document import Part

_HEADINGS = {
    Scaling.STRONG: "the same training, a batch of {batch} shared among the devices",
    Scaling.WEAK: "more samples a step, a batch of {batch} on each device",
}
_SHARING = {Scaling.STRONG: "the batch shared", Scaling.WEAK: "a batch on each"}
_COLUMNS = (
    *("devices", "samples a step", "best", "step", "samples/s", "on one device, samples/s"),
    *("speed-up (range)", "efficiency"),
)
_PRICE, _LIMIT = "price of a million samples", "most lost to"


def render_hardware_comparison(compared: HardwareComparison) -> str:
    """Return the text."""
    parts: list[Part] = [Section("", _answers(compared))]
    for machine in compared.machines:
        parts += [_table(machine, scaling, compared.batch) for scaling in _HEADINGS]
        told = [*_memory(machine), *machine.notes]
        parts.append(Section("", [f"{machine.label}: {text}" for text in told]))
    return as_text(parts)


def _answers(compared: HardwareComparison) -> Iterator[str]:
    yield (
        f"{compared.model}, {compared.mode}, a batch of {compared.batch}: simulated from assumed "
        "costs, nothing was run"
    )
    for machine in compared.machines:
        yield from (f"{machine.label}: {said}" for said in _said(machine))
    if len(compared.machines) == 1:
        return
    fastest, cheapest = compared.fastest(), compared.cheapest()
    if fastest is not None:
        samples_per_s = f"{fastest.step.samples_per_s:,.0f}"
        yield f"most samples per second: {_first(fastest, samples_per_s)}"
    if cheapest is not None:
        price = f"{cheapest.machine.cost_per_million(cheapest.step):.3g}"
        yield f"least for a million samples: {_first(cheapest, price)}"


def _first(ranked: Ranked, figure: str) -> str:
    """Return which machine is first, or which tie."""
    label, devices = ranked.machine.label, counted(ranked.step.devices, "device")
    others = ", ".join(machine.label for machine in ranked.ties)
    if ranked.is_by_launches:
        return (
            "a tie: launches decide, which are the host's: "
            f"{figure} on {devices} of {label}, not surely more than {others}; "
            f"if launches cost nothing, {ranked.without_launches.label} is first"
        )
    unsure = f", not surely before {others}" if others else ""
    return f"{label}, {figure} on {devices}{unsure}"


def _said(machine: MachineScaling) -> Iterator[str]:
    """Yield the answer of `advisor analyze`, then up to how many devices each doubling pays."""
    if machine.answer is not None:
        yield machine.answer
    if not machine.rows or machine.rows[0].devices > 1:
        yield "the step does not fit on one device"
        return
    for scaling, words in _SHARING.items():
        knee = machine.knee(scaling)
        if knee is not None and any(row.speedup for row in machine.best(scaling)):
            yield f"{words}: {_up_to(knee)}"


def _up_to(knee: Knee) -> str:
    pays = f"each doubling pays up to {counted(knee.devices, 'device')}"
    if knee.devices == 1:
        pays = "a second device brings less than half of what it could"
    between = f"{knee.at_worst} to {knee.at_best}"
    return pays if knee.at_worst == knee.at_best else f"{pays} ({between} within the ranges)"


def _table(machine: MachineScaling, scaling: Scaling, batch: int) -> Section:
    best = machine.best(scaling)
    price = [] if machine.price_per_hour is None else [_PRICE]
    rows = []
    for step in best:
        cost = machine.cost_per_million(step)
        rows.append([*_cells(step), *([] if cost is None else [f"{cost:.3g}"]), _lost(step)])
    table = Table([*_COLUMNS, *price, _LIMIT], rows, names=(-1,))
    is_shared = any(step.devices > 1 for step in best)
    title = f"{machine.label}: {_HEADINGS[scaling].format(batch=batch)}"
    return Section(title, [table] if is_shared else [])


def _cells(step: ScaledStep) -> list[str]:
    family = step.family if step.used == step.devices else f"{step.family} on {step.used}"
    alone = step.alone_per_s
    speedup, efficiency = step.speedup, step.efficiency
    return [
        str(step.devices),
        f"{step.samples:,}",
        family,
        format_ns(step.step_ns),
        f"{step.samples_per_s:,.0f}",
        NOTHING if alone is None else f"{alone:,.0f}",
        NOTHING if speedup is None else with_range(speedup.median, speedup),
        NOTHING if efficiency is None else f"{efficiency * 100:.0f} %",
    ]


def _lost(step: ScaledStep) -> str:
    """Return what most is lost to, or why a step is faster than so many devices can make it."""
    if step.excess is Excess.LAUNCHES and step.without_launches:
        return (
            f"nothing: more threads launch; {1 / step.without_launches:.2f}× if launches cost "
            "nothing"
        )
    if step.excess is Excess.UNEXPLAINED:
        return f"over {step.devices}×, and the simulation does not show why: not counted"
    return "" if step.limit is None else step.limit


def _memory(machine: MachineScaling) -> list[str]:
    """Return what the fullest device holds, and how large a batch it could have."""
    weak = [step.family for step in machine.best(Scaling.WEAK)][-1:]
    size = machine.memory_bytes
    has = "" if size is None else f" of {format_bytes(size)}"
    return [
        f"memory{has}: {held.family} on {counted(held.devices, 'device')} holds "
        f"{format_bytes(held.peak_bytes)} at most"
        + (
            ""
            if held.largest_batch is None
            else f"; a batch of {held.largest_batch:,} on each device fits"
        )
        for held in machine.memory
        if held.devices == 1 or held.family in weak
    ]
