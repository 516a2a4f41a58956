"""How to share a batch among devices, as text: what each takes alone, and the splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.batch import split_step
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO
from placement_advisor.report.document import NOTHING, Section, Table, as_text
from placement_advisor.units import NS_PER_S, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.cost.batch import SplitStep
    from placement_advisor.cost.batch_balance import Balance, DeviceSpeed
    from placement_advisor.report.document import Part


def render_balance(balance: Balance) -> str:
    """Return the text, which begins with the answer and ends with what to type next."""
    return as_text(_parts(balance))


def _parts(balance: Balance) -> Iterator[Part]:
    ratio = ":".join(map(str, balance.advised))
    yield _answer(balance, ratio)
    yield _devices(balance.devices)
    yield _splits(balance)
    basis = [
        "Alone and splits: measured, mean of steps without the tenth at either end.",
        "By the lines: what the slowest device takes alone; merging comes on top.",
    ]
    yield Section("", basis)
    yield Section("", _memory(balance))
    yield _other_batches(balance)
    # Batches that a file holds as values have the size that they have.
    size = f" --batch-size {balance.batch}" if balance.batch_was_asked else ""
    yield f"next: advisor analyze {balance.model}{size} --candidates batch --ratios {ratio}"


def _answer(balance: Balance, ratio: str) -> str:
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


def _memory(balance: Balance) -> list[str]:
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
        return [held, "How much there is of it is not known: --memory 16GB:8GB says it."]
    return [held, f"Samples that fit: {', '.join(known)}."]


def _devices(devices: Sequence[DeviceSpeed]) -> Table:
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


def _splits(balance: Balance) -> Table:
    """Return the splits that were run, the best of them last."""
    lines = [device.line for device in balance.devices]
    notes = {balance.even.batches: "even", balance.best.batches: "by the lines"}
    notes[balance.advised] = "advised"
    slowest_first = sorted(balance.tried, key=lambda samples: -balance.tried[samples])
    rows = []
    for samples in slowest_first or [balance.even.batches, balance.best.batches]:
        step_ns = balance.tried.get(samples)
        by_lines = format_ns(split_step(lines, samples).slowest_ns)
        measured = [NOTHING, NOTHING]
        if step_ns is not None:
            measured = [format_ns(step_ns), f"{balance.batch / step_ns * NS_PER_S:,.0f}"]
        rows.append([notes.get(samples, ""), *map(str, samples), *measured, by_lines])
    names = [device.name for device in balance.devices]
    return Table(["split", *names, "step", "samples/s", "by the lines"], rows)


def _other_batches(balance: Balance) -> Part:
    if not balance.lies_on_lines:
        return "Other batches: nothing is said, step times lie on no line over the batch."
    rows = [[str(sum(split.batches)), *_figures(split)] for split in balance.others]
    best = balance.best_batch
    if best is not None:
        rows.append([f"best that fits: {sum(best.batches)}", *_figures(best)])
    names = [device.name for device in balance.devices]
    return Table(["global batch, by the lines", *names, "step", "samples/s"], rows)


def _figures(split: SplitStep) -> list[str]:
    return [*map(str, split.batches), format_ns(split.slowest_ns), _rate(split)]


def _rate(split: SplitStep) -> str:
    return f"{split.most_samples_per_s:,.0f}"
