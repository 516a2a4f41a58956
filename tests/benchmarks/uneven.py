"""Two uneven cards: their totals predicted from what each does alone, against those published.

    python tests/benchmarks/uneven.py FOLDER

FOLDER holds `uneven-gpus.json`: single-card points and two-card totals in samples per second. One
card has several points and gets a line of its own; the other has one, and is taken to be slower by
one ratio throughout. Nothing of the two-card runs goes into the prediction. What it costs the
cards to synchronise is unknown, so predictions are upper bounds.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from placement_advisor.cost.batch import (
    BatchTime,
    Throughput,
    best_split,
    fit_batch_time,
    split_step,
)

_FILE = "uneven-gpus.json"
# The figure.
_WITHIN = 0.04


def main() -> None:
    parser = argparse.ArgumentParser(description="Predict two uneven cards from each alone.")
    parser.add_argument("folder", type=Path, help=f"folder with {_FILE}")
    published = json.loads((parser.parse_args().folder / _FILE).read_text(encoding="utf-8"))
    points: dict[int, list[Throughput]] = defaultdict(list)
    for row in published["single"]:
        points[row["gpu"]].append(
            Throughput(batch=row["batch"], samples_per_s=row["samples_per_s"])
        )
    cards = _cards([points[gpu] for gpu in sorted(points)])
    for gpu, card in enumerate(cards):
        print(
            f"card {gpu}: {card.fixed_ns / 1e6:.1f} ms + {card.per_sample_ns / 1e6:.3f} ms/sample"
        )
        for point in points[gpu]:
            error = card.step_ns(point.batch) / point.step_ns - 1
            print(f"    batch {point.batch:>5}: {point.step_ns / 1e6:7.1f} ms, line {error:+.1%}")
    print("\nbatches         published  predicted   error   best split of the same batch")
    errors = []
    for row in published["both"]:
        batches = row["batches"]
        predicted = split_step(cards, batches).most_samples_per_s
        best = best_split(cards, sum(batches))
        at_best = split_step(cards, best).most_samples_per_s
        label = " + ".join(map(str, batches))
        if "total" in row:
            errors.append(predicted / row["total"] - 1)
            found = f"{row['total']:>9}  {predicted:>9.0f}  {errors[-1]:+.1%}"
        else:
            found = f"{'no memory':>9}  {predicted:>9.0f}       "
        print(f"{label:<14} {found}   {' + '.join(map(str, best))}: {at_best:.0f}")
    reached = all(abs(error) <= _WITHIN for error in errors)
    print(f"\n{len(errors)} totals, each within {_WITHIN:.0%}: {'yes' if reached else 'no'}")


def _cards(points: list[list[Throughput]]) -> list[BatchTime]:
    """Return each card's line; the card with most points is the reference of those with one."""
    reference = fit_batch_time(max(points, key=len))
    return [_scaled(reference, *own) if len(own) == 1 else fit_batch_time(own) for own in points]


def _scaled(reference: BatchTime, point: Throughput) -> BatchTime:
    """Return the line of a card with one measurement, the reference as much slower throughout."""
    ratio = point.step_ns / (reference.fixed_ns + reference.per_sample_ns * point.batch)
    return BatchTime(
        fixed_ns=round(reference.fixed_ns * ratio), per_sample_ns=reference.per_sample_ns * ratio
    )


if __name__ == "__main__":
    main()
