"""Texts of `advisor search`, `balance` and `compare-hardware`: the answer first, then tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis import machine_scaling
from placement_advisor.cost import batch as batch_costs
from placement_advisor.defaults import WORTHWHILE_RATIO
from placement_advisor.report.document import NOTHING, Facts, Part, Section, Table, as_text
from placement_advisor.report.statements import with_range
from placement_advisor.units import NS_PER_S, counted, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.results.plans import Search


_WHY_STOPPED = {
    "effort": "the effort was used up; more may find better: --effort",
    "clock": "the time limit cut it, so another run may differ",
}


def render_search(search: Search) -> str:
    """Return the text."""
    return as_text([_verdict(search), Facts(_facts(search)), _search_devices(search)])


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


def _search_devices(search: Search) -> Table:
    rows = [
        [format_ns(each.work_ns), format_bytes(each.held_bytes), str(each.ops), each.name]
        for each in search.devices
    ]
    return Table(["compute", "memory", "ops", "device"], rows, names=(-1,))


def render_balance(balance: batch_costs.Balance) -> str:
    """Return the text, which begins with the answer and ends with what to type next."""
    return as_text(_parts(balance))


def _parts(balance: batch_costs.Balance) -> Iterator[Part]:
    ratio = ":".join(map(str, balance.advised))
    yield _answer(balance, ratio)
    yield _devices_alone(balance.devices)
    yield _splits(balance)
    basis = [
        "Alone and splits: measured, mean of steps without the tenth at either end.",
        "By the lines: what the slowest device takes alone, before merging.",
    ]
    yield Section("", basis)
    yield Section("", _memory_limits(balance))
    yield _other_batches(balance)
    # Batches that a file holds as values have the size that they have.
    size = f" --batch-size {balance.batch}" if balance.batch_was_asked else ""
    yield f"next: advisor analyze {balance.model}{size} --candidates batch --ratios {ratio}"


def _answer(balance: batch_costs.Balance, ratio: str) -> str:
    where = f"on {balance.testbed}"
    step_ns = balance.tried.get(balance.advised)
    if step_ns is None:
        gain = balance.even.slowest_ns / max(1, balance.best.slowest_ns)
        return (
            f"share a batch of {balance.batch} as {ratio}: by the lines at most "
            f"{_rate(balance.best)} samples/s, {gain:.2f}× an even split, {where}"
        )
    rate = balance.batch / step_ns * NS_PER_S
    gains = []
    if balance.fastest_alone is None:
        gains.append("more than one device holds")
    else:
        name, alone = balance.fastest_alone
        if rate * WORTHWHILE_RATIO < alone:
            return (
                f"do not split a batch of {balance.batch}: {name} alone makes {alone:,.0f} "
                f"samples/s, the best split that was tried, {ratio}, {rate:,.0f}, measured {where}"
            )
        gains.append(f"{rate / alone:.2f}× {name} alone")
    even_ns = balance.tried.get(balance.even.batches)
    gains.append(
        "an even split does not fit"
        if even_ns is None
        else f"{even_ns / step_ns:.2f}× an even split"
    )
    return (
        f"share a batch of {balance.batch} as {ratio}: {rate:,.0f} samples/s, {', '.join(gains)}, "
        f"measured {where}"
    )


def _memory_limits(balance: batch_costs.Balance) -> list[str]:
    """Return what the step holds, and how many samples that lets each device take."""
    memory = balance.memory
    held = (
        f"Memory of a device, simulated: {format_bytes(memory.fixed_bytes)}, and "
        f"{format_bytes(memory.per_sample_bytes)} for each sample."
    )
    known = [
        f"{device.name} holds {most:,}"
        for device, most in zip(balance.devices, balance.most, strict=True)
        if most is not None
    ]
    if not known:
        return [held, "The memory of devices is not known: set it with --memory 16GB:8GB."]
    return [held, f"Samples that fit: {', '.join(known)}."]


def _devices_alone(devices: Sequence[batch_costs.DeviceSpeed]) -> Table:
    batches = [f"batch {point.batch}" for point in devices[0].points]
    rows = [
        [
            device.name,
            *(f"{point.samples_per_s:,.0f}/s" for point in device.points),
            format_ns(device.line.fixed_ns),
            format_ns(device.line.per_sample_ns),
            f"{max(device.residuals, key=abs) * 100:+.1f} %",
        ]
        for device in devices
    ]
    return Table(["alone", *batches, "fixed", "per sample", "line off by"], rows)


def _splits(balance: batch_costs.Balance) -> Table:
    """Return the splits that were run, the best of them last."""
    lines = [device.line for device in balance.devices]
    notes = {balance.even.batches: "even", balance.best.batches: "by the lines"}
    notes[balance.advised] = "advised"
    slowest_first = sorted(balance.tried, key=lambda samples: -balance.tried[samples])
    rows = []
    for samples in slowest_first or [balance.even.batches, balance.best.batches]:
        step_ns = balance.tried.get(samples)
        by_lines = format_ns(batch_costs.split_step(lines, samples).slowest_ns)
        measured = [NOTHING, NOTHING]
        if step_ns is not None:
            measured = [format_ns(step_ns), f"{balance.batch / step_ns * NS_PER_S:,.0f}"]
        rows.append([notes.get(samples, ""), *map(str, samples), *measured, by_lines])
    names = [device.name for device in balance.devices]
    return Table(["split", *names, "step", "samples/s", "by the lines"], rows)


def _other_batches(balance: batch_costs.Balance) -> Part:
    if not balance.lies_on_lines:
        return "Other batches: nothing is predicted, as step times follow no line over the batch."
    rows = [[str(sum(split.batches)), *_figures(split)] for split in balance.others]
    best = balance.best_batch
    if best is not None:
        rows.append([f"best that fits: {sum(best.batches)}", *_figures(best)])
    names = [device.name for device in balance.devices]
    return Table(["global batch, by the lines", *names, "step", "samples/s"], rows)


def _figures(split: batch_costs.SplitStep) -> list[str]:
    return [*map(str, split.batches), format_ns(split.slowest_ns), _rate(split)]


def _rate(split: batch_costs.SplitStep) -> str:
    return f"{split.most_samples_per_s:,.0f}"


_HEADINGS = {
    machine_scaling.Scaling.STRONG: (
        "the same training, a batch of {batch} shared among the devices"
    ),
    machine_scaling.Scaling.WEAK: "more samples a step, a batch of {batch} on each device",
}
_SHARING = {
    machine_scaling.Scaling.STRONG: "the batch shared",
    machine_scaling.Scaling.WEAK: "a batch on each",
}
_COLUMNS = (
    *("devices", "samples a step", "best", "step", "samples/s", "on one device, samples/s"),
    *("speed-up (range)", "efficiency"),
)
_PRICE, _LIMIT = "price of a million samples", "most lost to"


def render_hardware_comparison(compared: machine_scaling.HardwareComparison) -> str:
    """Return the text."""
    parts: list[Part] = [Section("", _answers(compared))]
    for machine in compared.machines:
        parts += [_table(machine, scaling, compared.batch) for scaling in _HEADINGS]
        told = [*_memory_by_family(machine), *machine.notes]
        parts.append(Section("", [f"{machine.label}: {text}" for text in told]))
    return as_text(parts)


def _answers(compared: machine_scaling.HardwareComparison) -> Iterator[str]:
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


def _first(ranked: machine_scaling.Ranked, figure: str) -> str:
    """Return which machine is first, or which tie."""
    label, devices = ranked.machine.label, counted(ranked.step.devices, "device")
    others = ", ".join(machine.label for machine in ranked.ties)
    if ranked.is_by_launches:
        return (
            "a tie: launches by the host decide: "
            f"{figure} on {devices} of {label}, not surely more than {others}. "
            f"If launches cost nothing, {ranked.without_launches.label} is first"
        )
    unsure = f", not surely before {others}" if others else ""
    return f"{label}, {figure} on {devices}{unsure}"


def _said(machine: machine_scaling.MachineScaling) -> Iterator[str]:
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


def _up_to(knee: machine_scaling.Knee) -> str:
    pays = f"each doubling pays up to {counted(knee.devices, 'device')}"
    if knee.devices == 1:
        pays = "a second device brings less than half of what it could"
    between = f"{knee.at_worst} to {knee.at_best}"
    return pays if knee.at_worst == knee.at_best else f"{pays} ({between} within the ranges)"


def _table(
    machine: machine_scaling.MachineScaling, scaling: machine_scaling.Scaling, batch: int
) -> Section:
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


def _cells(step: machine_scaling.ScaledStep) -> list[str]:
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


def _lost(step: machine_scaling.ScaledStep) -> str:
    """Return what most is lost to, or why a step is faster than so many devices can make it."""
    if step.excess is machine_scaling.Excess.LAUNCHES and step.without_launches:
        return (
            f"nothing: more threads launch; {1 / step.without_launches:.2f}× if launches cost "
            "nothing"
        )
    if step.excess is machine_scaling.Excess.UNEXPLAINED:
        return f"over {step.devices}×, and the simulation does not show why: not counted"
    return "" if step.limit is None else step.limit


def _memory_by_family(machine: machine_scaling.MachineScaling) -> list[str]:
    """Return what the fullest device holds, and how large a batch it could have."""
    weak = [step.family for step in machine.best(machine_scaling.Scaling.WEAK)][-1:]
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
