"""How to share a batch among devices, as text: what each takes alone, and the splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.tables import one_line
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.cost.balance import Balance, DeviceSpeed
    from placement_advisor.cost.batch import SplitStep


def render_balance(balance: Balance) -> str:
    """Return the text, which begins with the answer and ends with what to type next."""
    ratio = ":".join(map(str, balance.best.batches))
    gain = balance.even.slowest_ns / max(1, balance.best.slowest_ns)
    head = (
        f"share a batch of {balance.batch} as {ratio}: at most "
        f"{_rate(balance.best)} samples/s, {gain:.2f}× an even split, on {balance.testbed}"
    )
    parts = [
        [one_line(head)],
        _devices(balance.devices),
        _splits(balance),
        [
            "Alone: measured. A step of a split is that of its slowest device, by the lines above;",
            "merging what the others computed comes on top. Batches beyond those that were timed",
            "are further than the lines were measured.",
        ],
        [
            f"next: advisor analyze {one_line(balance.model)} --batch-size {balance.batch} "
            f"--candidates batch --ratios {ratio}",
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


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
    return _aligned(rows)


def _splits(balance: Balance) -> list[str]:
    names = [one_line(device.name) for device in balance.devices]
    rows = [["global batch", *names, "step", "samples/s"]]
    rows.append([f"{balance.batch}, even", *_figures(balance.even)])
    rows += [[f"{sum(split.batches)}, best", *_figures(split)] for split in balance.others]
    return _aligned(rows)


def _figures(split: SplitStep) -> list[str]:
    return [*map(str, split.batches), format_ns(split.slowest_ns), _rate(split)]


def _rate(split: SplitStep) -> str:
    return f"{split.most_samples_per_s:,.0f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
