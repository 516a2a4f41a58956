"""Predicted against measured: every sample, trained and inferred, under all its candidates.

    PYTHONPATH=tests python tests/benchmarks/fidelity.py

For each model, on the `workers` testbed: calibrate it (nothing of the model runs), run the model on
one device to learn what its ops cost, predict every candidate and write the predictions down; only
then run the candidates, in interleaved rounds. Compared is the predicted ratio to `single` with the
measured one, taken within rounds. Beside the advisor's own candidates, two more cuts of each model
are made here: `halves` of its work by layer, and a `sandwich` of thirds. Models that nobody tuned
for are measured by `record_runs` and `recorded_errors`.

Printed are the errors, by family, next to how well the measurement repeats itself (the ratio of the
even rounds against that of the odd ones); how many ratios lie in their predicted range; whether the
order of candidates is kept where their intervals do not overlap; the regret of whoever trusts the
prediction, measured afresh; copies, predicted and counted.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fidelity_plot import scatter
from machine_facts import machine_facts
from paired_runs import Model, Pair, predicted_and_run

from placement_advisor.defaults import BASELINE
from placement_advisor.processes.children import preload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SAMPLES = Path(__file__).parents[2] / "sample_models"


def main() -> None:
    """Measure the samples named on the command line, all without a name."""
    names = sorted(path.stem for path in _SAMPLES.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=f"of {', '.join(names)}")
    parser.add_argument("--modes", default="train,infer", help="of samples: train,infer")
    parser.add_argument("--rounds", type=int, default=20, help="timing rounds per model (20)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help="draw predicted over measured into this file")
    options = parser.parse_args()
    preload()
    models = []
    for model in _samples(options.samples or names, options.modes.split(","), options.rounds):
        _print(model)
        models.append(model)
    _print_summary(models)
    if options.json:
        content = {"machine": machine_facts(), "models": [asdict(model) for model in models]}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    if options.plot:
        points = [(pair.candidate, pair.measured, pair.predicted) for pair in _pairs(models)]
        scatter(points, options.plot)


def _samples(names: Sequence[str], modes: Sequence[str], rounds: int) -> Iterator[Model]:
    for name in names:
        for mode in modes:
            model = predicted_and_run(_SAMPLES / f"{name}.py", mode, rounds)
            if model is not None:
                yield model


def _pairs(models: Iterable[Model]) -> list[Pair]:
    return [pair for model in models for pair in model.pairs]


def _print(model: Model) -> None:
    off = model.single_predicted_ns / model.single_ns - 1
    print(f"\n{model.name}: single {model.single_ns / 1e6:.2f} ms, predicted {off:+.0%}")
    for pair in model.pairs:
        print(
            f"  {pair.candidate:<12} predicted {pair.predicted:6.3f}  measured {pair.measured:6.3f}"
            f" ({pair.low:.3f} to {pair.high:.3f})  error {pair.error:+6.1%}"
            f"  repeated {pair.odd / pair.even - 1:+5.1%}"
            f"  copies {pair.copies_predicted} / {pair.copies_counted}",
            flush=True,
        )


def _print_summary(models: Sequence[Model]) -> None:
    pairs = _pairs(models)
    by_family: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_family[pair.candidate].append(pair)
    print(f"\n{'':<37}errors{'':>20}repeated")
    print(f"{'family':<14}{'pairs':>6}{'median':>9}{'p90':>8}{'signed':>9}{'median':>12}{'p90':>8}")
    for family, of in [*by_family.items(), ("all", pairs)]:
        errors = np.abs([pair.error for pair in of])
        repeats = np.abs([pair.odd / pair.even - 1 for pair in of])
        print(
            f"{family:<14}{len(of):>6}{np.median(errors):>9.1%}{np.quantile(errors, 0.9):>8.1%}"
            f"{np.median([pair.error for pair in of]):>+9.1%}"
            f"{np.median(repeats):>12.1%}{np.quantile(repeats, 0.9):>8.1%}"
        )
    held = sum(pair.is_in_range for pair in pairs)
    width = np.median([pair.most / pair.least for pair in pairs])
    print(
        f"\nranges: {held} of {len(pairs)} measured ratios lie in the predicted one, "
        f"whose ends are {width:.2f}× apart (median)"
    )
    wrong = [each for model in models for each in _order_broken(model)]
    print(f"\norder of candidates: {len(wrong)} pairs predicted the wrong way round")
    for line in wrong:
        print(f"  {line}")
    print("regret of the prediction:")
    for model in models:
        trusted = min(
            [(1.0, 1.0, BASELINE), *((p.predicted, p.fresh, p.candidate) for p in model.pairs)]
        )
        best = min(
            [(1.0, 1.0, BASELINE), *((p.measured, p.fresh, p.candidate) for p in model.pairs)]
        )
        regret = trusted[1] / best[1] - 1
        print(f"  {model.name:<30} trusts {trusted[2]:<12} best {best[2]:<12} {regret:+.1%}")
    uncounted = [p for p in pairs if p.copies_predicted != p.copies_counted]
    print(f"copies per step: {len(pairs) - len(uncounted)} of {len(pairs)} predicted as counted")
    for pair in uncounted:
        print(f"  {pair.model} {pair.candidate}: {pair.copies_predicted} / {pair.copies_counted}")


def _order_broken(model: Model) -> Iterable[str]:
    """Yield the pairs of candidates whose intervals are apart, and that were predicted reversed."""
    rows = [(BASELINE, 1.0, 1.0, 1.0)]
    rows += [(pair.candidate, pair.predicted, pair.low, pair.high) for pair in model.pairs]
    for one, other in combinations(rows, 2):
        faster, slower = sorted((one, other), key=lambda row: row[2])
        if faster[3] < slower[2] and faster[1] > slower[1]:
            yield f"{model.name}: {faster[0]} before {slower[0]}"


if __name__ == "__main__":
    main()
