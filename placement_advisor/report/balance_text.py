"""How to share a batch among devices, as text: what each takes alone, and the splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.batch import split_step
from placement_advisor.measurement.verdict import WORTHWHILE_RATIO
from placement_advisor.report.analysis.tables import one_line, right_aligned
from placement_advisor.units import NS_PER_S, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.cost.batch import SplitStep
    from placement_advisor.cost.batch_balance import Balance, DeviceSpeed


def render_balance(balance: Balance) -> str:
    """Return the text, which begins with the answer and ends with what to type next."""
    ratio = ":".join(map(str, balance.advised))
    # Batches that a file holds as values have the size that they have.
    size = f" --batch-size {balance.batch}" if balance.batch_was_asked else ""
    parts = [
        [one_line(_answer(balance, ratio))],
        _devices(balance.devices),
        _splits(balance),
        [
            "Alone and splits: measured, mean of steps without the tenth at either end.",
            "By the lines: what the slowest device takes alone; merging comes on top.",
        ],
        _memory(balance),
        _other_batches(balance),
        [
            f"next: advisor analyze {one_line(balance.model)}{size} --candidates batch "
            f"--ratios {ratio}",
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


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
        f"{one_line(device.name)} holds {most:,}"
        for device, most in zip(balance.devices, balance.most, strict=True)
        if most is not None
    ]
    if not known:
        return [held, "How much there is of it is not known: --memory 16GB:8GB says it."]
    return [held, f"Samples that fit: {', '.join(known)}."]


def _devices(devices: Sequence[DeviceSpeed]) -> list[str]:
    sizes = [point.batch for point in devices[0].points]
    rows = [["alone", *(f"batch {size}" for size in sizes), "fixed", "per sample", "line off by"]]
    for device in devices:
        worst = max(device.residuals, key=abs)
        rows.append(
            [
                one_line(device.name),
                *(f"{point.samples_per_s:,.0f}/s" for point in device.points),
                format_ns(device.line.fixed_ns),
                format_ns(device.line.per_sample_ns),
                f"{worst * 100:+.1f} %",
            ]
        )
    return right_aligned(rows)


def _splits(balance: Balance) -> list[str]:
    """Return the splits that were run, the best of them last."""
    names = [one_line(device.name) for device in balance.devices]
    lines = [device.line for device in balance.devices]
    rows = [["split", *names, "step", "samples/s", "by the lines"]]
    notes = {balance.even.batches: "even", balance.best.batches: "by the lines"}
    notes[balance.advised] = "advised"
    slowest_first = sorted(balance.tried, key=lambda samples: -balance.tried[samples])
    for samples in slowest_first or [balance.even.batches, balance.best.batches]:
        step_ns = balance.tried.get(samples)
        rate = "–" if step_ns is None else f"{balance.batch / step_ns * NS_PER_S:,.0f}"
        by_lines = format_ns(split_step(lines, samples).slowest_ns)
        measured = "–" if step_ns is None else format_ns(step_ns)
        rows.append([notes.get(samples, ""), *map(str, samples), measured, rate, by_lines])
    return right_aligned(rows)


def _other_batches(balance: Balance) -> list[str]:
    if not balance.lies_on_lines:
        return ["Other batches: nothing is said, step times lie on no line over the batch."]
    names = [one_line(device.name) for device in balance.devices]
    rows = [["global batch, by the lines", *names, "step", "samples/s"]]
    rows += [[str(sum(split.batches)), *_figures(split)] for split in balance.others]
    best = balance.best_batch
    if best is not None:
        rows.append([f"best that fits: {sum(best.batches)}", *_figures(best)])
    return right_aligned(rows)


def _figures(split: SplitStep) -> list[str]:
    return [*map(str, split.batches), format_ns(split.slowest_ns), _rate(split)]


def _rate(split: SplitStep) -> str:
    return f"{split.most_samples_per_s:,.0f}"
