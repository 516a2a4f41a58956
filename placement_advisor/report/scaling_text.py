"""What further devices of machines bring, as text: the answers first, then a table of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.machine_scaling import Scaling
from placement_advisor.analysis.scaled_steps import Limit
from placement_advisor.report.analysis.tables import one_line
from placement_advisor.report.trace_summary import aligned
from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.analysis.machine_scaling import (
        HardwareComparison,
        MachineScaling,
        ScaledStep,
    )

_HEADINGS = {
    Scaling.WEAK: "a batch of {batch} on each device: weak scaling, more samples a step",
    Scaling.STRONG: "a batch of {batch} shared among them: strong scaling, the same training",
}
_COLUMNS = ("devices", "family", "step", "samples/s", "speed-up", "efficiency")
_MEMORY_COLUMNS = ("devices", "family", "most held", "largest batch of each that fits")
_PRICE, _LIMIT = "per million", "most lost to"
_KNEE = "◀ pays up to here"
_NOTHING = "–"


def render_hardware_comparison(compared: HardwareComparison) -> str:
    """Return the text."""
    parts = [list(_answers(compared))]
    for machine in compared.machines:
        parts.append(_memory(machine, compared.batch))
        parts += [_table(machine, scaling, compared.batch) for scaling in Scaling]
        parts.append([one_line(f"{machine.label}: {note}") for note in machine.notes])
    return "\n\n".join("\n".join(map(str.rstrip, part)) for part in parts if part) + "\n"


def _answers(compared: HardwareComparison) -> Iterator[str]:
    yield one_line(
        f"{compared.model}, {compared.mode}, a batch of {compared.batch}: simulated from assumed "
        "costs, nothing was run"
    )
    for machine in compared.machines:
        yield one_line(f"{machine.label}: {_knees(machine)}")
    knees = [
        (machine, knee)
        for machine in compared.machines
        if (knee := machine.knee(Scaling.WEAK)) is not None
    ]
    if len(compared.machines) == 1 or not knees:
        return
    fastest, step = max(knees, key=lambda pair: pair[1].samples_per_s)
    yield one_line(
        f"most samples per second: {fastest.label}, {step.samples_per_s:,.0f} on "
        f"{_devices(step.devices)}"
    )
    priced = [
        (cost, machine, step)
        for machine, step in knees
        if (cost := machine.cost_per_million(step)) is not None
    ]
    if priced:
        cost, cheapest, step = min(priced, key=lambda each: each[0])
        yield one_line(
            f"least for a million samples: {cheapest.label}, {cost:.3g} on {_devices(step.devices)}"
        )


def _knees(machine: MachineScaling) -> str:
    """Return up to how many devices each doubling pays, and what is lost from there on."""
    told = []
    for scaling in Scaling:
        knee, best = machine.knee(scaling), machine.best(scaling)
        if knee is None:
            return "the step does not fit on its devices"
        rest = [step for step in best if step.devices > knee.devices]
        what = f"{scaling} scaling pays up to {_devices(knee.devices)} ({knee.speedup:.2f}×)"
        if rest and rest[0].limit is not None:
            what += f", then most is lost to {rest[0].limit}"
        told.append(what)
    return "; ".join(told)


def _memory(machine: MachineScaling, batch: int) -> list[str]:
    """Return what a device holds with each family, and how large a batch it could have."""
    if not machine.memory:
        return []
    size = machine.memory_bytes
    has = "" if size is None else f", which has {format_bytes(size)}"
    heading = f"{machine.label}, memory of the fullest device{has}, a batch of {batch} on each"
    rows: list[Sequence[str]] = [_MEMORY_COLUMNS]
    for held in machine.memory:
        most = _NOTHING if held.largest_batch is None else f"{held.largest_batch:,}"
        rows.append([str(held.devices), held.family, format_bytes(held.peak_bytes), most])
    return [one_line(heading), *aligned(rows)]


def _table(machine: MachineScaling, scaling: Scaling, batch: int) -> list[str]:
    is_priced = machine.price_per_hour is not None
    rows: list[Sequence[str]] = [[*_COLUMNS, *([_PRICE] if is_priced else []), _LIMIT]]
    knee = machine.knee(scaling)
    for step in machine.steps:
        if step.devices > 1 and step.scaling is not scaling:
            continue
        cells = _cells(step)
        if is_priced:
            cost = machine.cost_per_million(step) if step.fits else None
            cells.append(_NOTHING if cost is None else f"{cost:.3g}")
        limit = "does not fit" if step.limit is Limit.MEMORY else step.limit or ""
        rows.append([*cells, f"{limit} {_KNEE}".strip() if step is knee else limit])
    heading = f"{machine.label}, {_HEADINGS[scaling].format(batch=batch)}"
    told = [_larger_batches(machine)] if scaling is Scaling.WEAK and machine.larger else []
    return [one_line(heading), *aligned(rows), *told]


def _larger_batches(machine: MachineScaling) -> str:
    """Return what families that split layers are held against."""
    larger = ", ".join(
        f"{one.samples:,} at {one.samples_per_s:,.0f} a second"
        if one.fits
        else f"{one.samples:,} do not fit"
        for one in machine.larger
    )
    return f"layers split: speed-up over one device that takes all samples of a host ({larger})"


def _cells(step: ScaledStep) -> list[str]:
    if step.limit is Limit.MEMORY:
        return [str(step.devices), step.family, *[_NOTHING] * 4]
    return [
        str(step.devices),
        step.family,
        format_ns(step.step_ns),
        f"{step.samples_per_s:,.0f}",
        f"{step.speedup:.2f}×",
        f"{step.efficiency * 100:.0f} %",
    ]


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"
