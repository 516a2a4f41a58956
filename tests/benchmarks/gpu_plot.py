"""Predicted over measured times of published rows, as the picture of docs/gpus.md.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_plot.py RECORD THROUGHPUT -o PNG

RECORD and THROUGHPUT are those of `gpu_ops.py` and `gpu_throughput.py`. Each point of the first
panels is a row of the fifth to which no constant was fitted, with the constants that the package
ships; each of the last is a whole training step.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from gpu_op_fit import Rows
from gpu_ops import STREAMS, read_record, split
from gpu_throughput import predicted_steps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from placement_advisor.cost.gpu import kernel_times
from placement_advisor.cost.gpu.kernel_times import constants_for
from placement_advisor.machine.gpu_facts import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_throughput import Step
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

PANELS = {
    "products of matrices": ("linear",),
    "batched products": ("bmm",),
    "convolutions, 3x3": ("conv",),
    "elementwise": STREAMS,
    "softmax": ("softmax",),
    "layer normalisation": ("ln",),
}
# Okabe & Ito's colours, by chip: cards of one chip share one.
COLORS = {
    "GK210": "#000000",
    "GP104": "#D55E00",
    "GP100": "#E69F00",
    "TU104": "#CC79A7",
    "GV100": "#0072B2",
    "GA100": "#009E73",
}
CARDS = {
    "GP104": "P4",
    "GP100": "P100",
    "TU104": "T4",
    "GV100": "V100",
    "GA100": "A100",
    "GK210": "K80",
}
MARKERS = {"resnet50": "o", "vgg16": "s", "alexnet": "^"}
INK, FAINT, BAND = "#222222", "#767676", "#EEF0F3"
TOLERANCE = 0.2
LOW, HIGH = 0.4, 2.5
TICKS = (0.5, 0.8, 1.0, 1.25, 2.0)
MOST_POINTS = 1_500
# Numbers at each power of ten alone are enough for an axis of this length.
MANY_TIMES = 1_000
COLUMNS, LAST_OF_COLUMN = 4, 3


class Points(NamedTuple):
    """Rows of one GPU: what they took, and predicted over measured."""

    gpu: str
    measured_ms: NDArray[np.float64]
    ratios: NDArray[np.float64]


def main() -> None:
    """Draw the picture."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    arguments.add_argument("throughput", type=Path)
    arguments.add_argument("-o", "--output", type=Path, required=True)
    asked = arguments.parse_args()
    record = read_record(asked.record)
    panels = {
        title: [points for op in ops for points in held_out(op, record[op])]
        for title, ops in PANELS.items()
    }
    draw(panels, list(predicted_steps(asked.throughput, is_fused=True)), asked.output)


def held_out(op: str, tables: dict[str, NDArray[np.float64]]) -> list[Points]:
    """Return the rows of an op that were never fitted to, by GPU."""
    known = kernel_times.shipped_constants()
    found = []
    for name, table in tables.items():
        gpu = gpu_facts(name)
        _, held = split(table, inner=False)
        rows = Rows(
            op=op,
            gpu=gpu,
            bandwidth=kernel_times.copy_bandwidth(gpu, known),
            dims=held[:, :-1],
            latency_s=held[:, -1] / 1e6,
        )
        ratios = rows.predicted_s(constants_for(op, gpu, known)) / rows.latency_s
        found.append(Points(name, rows.latency_s * 1e3, ratios))
    return found


def draw(panels: dict[str, list[Points]], steps: Sequence[Step], path: Path) -> None:
    """Draw a panel for each family, one for training steps, and what colours mean."""
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    *of_kernels, of_steps, legend = figure.subplots(2, COLUMNS, sharey=True).flat
    for place, (title, points) in zip(of_kernels, panels.items(), strict=True):
        cloud(place, points)
        errors = np.abs(np.concatenate([each.ratios for each in points]) - 1)
        head(place, title, f"{errors.mean() * 100:.2g} % off in the mean")
    for step in steps:
        of_steps.scatter(
            step.published_ns / 1e6,
            step.kernels_ratio,
            s=46,
            marker=MARKERS[step.model],
            color=COLORS[gpu_facts(step.gpu).chip],
            edgecolor="white",
            linewidth=0.8,
            zorder=3,
        )
    error = np.mean([abs(step.kernels_ratio - 1) for step in steps])
    head(of_steps, "training steps", f"{error:.0%} off in the mean".replace("%", " %"))
    for i, place in enumerate((*of_kernels, of_steps)):
        frame(place)
        if i >= LAST_OF_COLUMN:
            place.set_xlabel("measured ms", color=FAINT, fontsize=9)
        if i % COLUMNS == 0:
            place.set_ylabel("predicted / measured", color=FAINT, fontsize=9)
    explain(legend)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the picture with as many colours as a byte tells apart, which takes less room."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100)
    picture = Image.open(buffer).convert("RGB")
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def cloud(axes: Axes, points: Sequence[Points]) -> None:
    """Draw rows as small points, those of all GPUs mixed so that none hides another."""
    colors = [c for each in points for c in [COLORS[gpu_facts(each.gpu).chip]] * len(each.ratios)]
    measured = np.concatenate([each.measured_ms for each in points])
    ratios = np.concatenate([each.ratios for each in points])
    order = np.random.default_rng(0).permutation(len(ratios))[:MOST_POINTS]
    axes.scatter(
        measured[order],
        np.clip(ratios[order], LOW, HIGH),
        s=5,
        c=np.array(colors)[order],
        alpha=0.55,
        linewidth=0,
        zorder=2,
    )


def head(axes: Axes, title: str, note: str) -> None:
    """Write a panel's title, and below it how far off its points are."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=18, weight="bold")
    axes.text(0, 1.025, note, transform=axes.transAxes, fontsize=9, color=FAINT)


def frame(axes: Axes) -> None:
    """Draw what is behind the points: the line of no error, and a band of 20 % around it."""
    axes.set(xscale="log", yscale="log", ylim=(LOW, HIGH))
    axes.axhspan(1 / (1 + TOLERANCE), 1 + TOLERANCE, color=BAND, zorder=0)
    axes.axhline(1, color=FAINT, linewidth=0.8, zorder=1)
    axes.set_yticks(TICKS)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim()
    between = () if high / low > MANY_TIMES else (3,)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, *between), numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", length=0, labelsize=9, labelcolor=FAINT)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def explain(axes: Axes) -> None:
    """Say what colours and marks mean."""
    axes.axis("off")
    cards = [
        Line2D([], [], marker="o", linestyle="", color=COLORS[chip], label=card)
        for chip, card in CARDS.items()
    ]
    models = [
        Line2D([], [], marker=mark, linestyle="", color=FAINT, label=model)
        for model, mark in MARKERS.items()
    ]
    band = Line2D([], [], linewidth=10, color=BAND, label="within 20 %")
    style = {"frameon": False, "fontsize": 10, "labelcolor": INK, "labelspacing": 0.6}
    axes.add_artist(axes.legend(handles=cards, loc="upper left", **style))
    axes.legend(handles=[*models, band], loc="upper right", **style)


if __name__ == "__main__":
    main()
