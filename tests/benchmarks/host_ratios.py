"""Splits over two hosts, predicted and run: random models over networks of three speeds.

    PYTHONPATH=tests python tests/benchmarks/host_ratios.py --seeds 1 2 3 4

Hosts are network namespaces, a core each. Every model is analyzed over every network by the command
itself, which predicts before it runs; no candidate joins later. A split's prediction is *firm*
where its range lies on one side of `WORTHWHILE_RATIO`, and *contradicted* where the measured
interval lies on the other. The interval's ends stand beside each error, for how well the
measurement knows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from network_lab.lab import lab
from network_lab.two_hosts import TwoHosts
from random_models import random_model

from placement_advisor.defaults import WORTHWHILE_RATIO

if TYPE_CHECKING:
    from collections.abc import Sequence

RATES_MBIT = (1000, 300, 100)
DELAY_MS = 0.1
FAMILIES = "towers,pipeline,batch,mirrored"
NEEDS, WITHOUT = ("training", "towers", "functional"), ("loop_in_graph",)
ALLOWED, FIRM = 0.12, 2 / 3
_ADVISOR = ("-P", "-m", "placement_advisor.cli.app")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split of a model over one network: ratios of its step to the step on one device."""

    model: str
    rate_mbit: float
    name: str
    predicted: float
    least: float
    most: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """How far the prediction is off, in proportion."""
        return self.predicted / self.measured - 1

    @property
    def is_firm(self) -> bool:
        """Whether the prediction says whether the split is worth it."""
        return self.most < WORTHWHILE_RATIO or self.least > WORTHWHILE_RATIO

    @property
    def is_contradicted(self) -> bool:
        """Whether what was measured is surely the other way round."""
        if self.most < WORTHWHILE_RATIO:
            return self.low > WORTHWHILE_RATIO
        return self.least > WORTHWHILE_RATIO and self.high < WORTHWHILE_RATIO


def analyzed(hosts: TwoHosts, model: Path, output: Path, *words: str) -> dict[str, Any]:
    """Run the command over both hosts and return its analysis."""
    said = (output.parent / f"{output.name}.err").open("w+")
    with said:
        process = hosts.run(
            *(*_ADVISOR, "analyze", str(model), "-o", str(output), *words, *hosts.options),
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        if process.wait():
            said.seek(0)
            raise SystemExit(f"{model.name}: {said.read()[-2_000:]}")
    found: dict[str, Any] = json.loads((output / "analysis.json").read_text())
    return found


def splits_of(model: str, rate_mbit: float, analysis: dict[str, Any]) -> list[Split]:
    """Return the splits that were both predicted and measured; say which were not."""
    found = []
    for candidate in analysis["candidates"]:
        predicted, measured = (
            (candidate[key] or {}).get("ratio_to_single") for key in ("predicted", "measured")
        )
        if candidate["name"] in ("single", "as-is"):
            continue
        if predicted is None or measured is None:
            print(f"  {model}, {candidate['name']}: {candidate['failure'] or 'has no ratio'}")
            continue
        low, high = measured["ci95"]
        found.append(
            Split(
                model=model,
                rate_mbit=rate_mbit,
                name=candidate["name"],
                predicted=predicted["ratio"],
                least=predicted["low"],
                most=predicted["high"],
                measured=measured["median"],
                low=low,
                high=high,
            )
        )
    return found


def written(seed: int, folder: Path, needs: Sequence[str] = NEEDS) -> Path:
    """Write the model of a seed."""
    path = folder / f"random_{seed}.py"
    path.write_text(random_model(seed, needs=needs, without=WITHOUT).text)
    return path


def main() -> None:
    """Print a row for each split, and what all come to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--needs", nargs="+", default=NEEDS, help="what models have")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES_MBIT, help="Mbit/s")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    splits: list[Split] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = [written(seed, folder, options.needs) for seed in options.seeds]
        for rate in options.rates:
            # A cache for each network: what was kept of another one would be measured anew anyway.
            environment = {**os.environ, "XDG_CACHE_HOME": str(folder / f"cache-{rate}")}
            with lab(hosts=2, rate_bit_per_s=rate * 1e6, delay_ns=round(DELAY_MS * 1e6)) as network:
                hosts = TwoHosts(network, folder, environment)
                for model in models:
                    output = folder / f"{model.stem}-{rate:g}"
                    words = ("--candidates", FAMILIES, "--refine", "0")
                    words += ("--rounds", str(options.rounds))
                    analysis = analyzed(hosts, model, output, *words)
                    verdict = analysis["recommendation"]["verdict"]
                    print(f"{model.stem}, {rate:g} Mbit/s: {verdict}", flush=True)
                    of_model = splits_of(model.stem, rate, analysis)
                    for each in of_model:
                        _print(each)
                    splits += of_model
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in splits], indent=1) + "\n")
    sys.exit(0 if _summed_up(splits) else "a figure is out of its limit")


def _print(split: Split) -> None:
    firm = "firm" if split.is_firm else "open"
    print(
        f"  {split.name:<10} predicted {split.predicted:7.3f} ({split.least:.3f} to "
        f"{split.most:.3f}), measured {split.measured:7.3f} ({split.low:.3f} to {split.high:.3f}), "
        f"error {split.error:+6.1%}, {'CONTRADICTED' if split.is_contradicted else firm}",
        flush=True,
    )


def _summed_up(splits: list[Split]) -> bool:
    groups = {name: [s for s in splits if s.name == name] for name in {s.name for s in splits}}
    rates = sorted({split.rate_mbit for split in splits})
    groups |= {f"{rate:g} Mbit/s": [s for s in splits if s.rate_mbit == rate] for rate in rates}
    for name, of in {**groups, "all": splits}.items():
        errors = [each.error for each in of]
        print(
            f"{name}: {len(of)} splits, error {statistics.median(map(abs, errors)):.1%} (median), "
            f"{max(errors, key=abs):+.1%} (largest), {statistics.median(errors):+.1%} (signed); "
            f"firm {sum(s.is_firm for s in of)}, contradicted {sum(s.is_contradicted for s in of)}"
        )
    return (
        statistics.median(abs(each.error) for each in splits) <= ALLOWED
        and not any(each.is_contradicted for each in splits)
        and sum(each.is_firm for each in splits) >= FIRM * len(splits)
    )


if __name__ == "__main__":
    main()
