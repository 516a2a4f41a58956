"""Predicted against measured samples per second of steps whose batch is split.

    PYTHONPATH=tests python tests/benchmarks/batch_splits.py [SAMPLE|SEED…] [--fresh 4]

Each sample, or random model of a seed, is analysed several times, from a new process as a user
would; the prediction is written before the step runs. Errors are those of samples per second, of
each family that splits the batch over two workers: as such, and in proportion to `single` of the
same run, since a shared machine is faster in one second than in the next. A cell is the median over
the runs. What a model refuses is printed with its reason; the next seed takes its place.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from machine_facts import machine_facts
from random_models import random_model

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_FOUR = ("mnist_cnn", "deep_mnist", "deepconn", "multi_tower_ranker")
_SPLITS = ("batch", "variables-spread", "mirrored")
_SEEDS = 10**6
_ADVISOR = "from placement_advisor.cli.app import main; main()"


def main() -> None:
    """Analyse the samples named on the command line, four without a name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="SAMPLE|SEED", help=f"{', '.join(_FOUR)}")
    parser.add_argument("--fresh", type=int, default=0, help="draw seeds until so many were split")
    parser.add_argument("--runs", type=int, default=3, help="analyses of each model (3)")
    options = parser.parse_args()
    print(machine_facts())
    medians: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    named = options.models or ([] if options.fresh else _FOUR)
    for name in named:
        _run(name, options.runs, medians)
    left = options.fresh
    while left:
        left -= _run(str(secrets.randbelow(_SEEDS)), options.runs, medians)
    for (split, how), found in sorted(medians.items()):
        print(f"{split:16} {how:10} median of {len(found)}: {median(found):.1%}")


def _run(name: str, runs: int, medians: defaultdict[tuple[str, str], list[float]]) -> bool:
    """Print what a model comes to; return whether its batch was split."""
    errors = defaultdict(list)
    for _ in range(runs):
        for key, error in _errors(name, _analysis(name)).items():
            errors[key].append(error)
        if not errors:
            return False
    for (split, how), found in errors.items():
        medians[split, how].append(abs(median(found)))
        each = " ".join(f"{error:+.1%}" for error in found)
        print(f"{name:20} {split:16} {how:10} {median(found):+7.1%}   ({each})", flush=True)
    return True


def _analysis(name: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = _SAMPLES / f"{name}.py"
        if name.isdigit():
            path = Path(folder) / f"random_{name}.py"
            path.write_text(random_model(int(name)).text)
        words = ("--candidates", ",".join(_SPLITS), "-o", f"{folder}/out", "-q", "--json")
        ran = subprocess.run(
            [sys.executable, "-c", _ADVISOR, "analyze", str(path), *words],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(ran.stdout)


def _errors(name: str, analysis: Any) -> dict[tuple[str, str], float]:
    """Return how far samples per second were predicted too high, by candidate and by measure."""
    found = {}
    for each in analysis["candidates"]:
        measured, predicted = each["measured"], each["predicted"]
        if each["name"] in _SPLITS and measured is not None:
            step_ns, ratio = measured["step_ns"], measured["ratio_to_single"]
            found[each["name"], "as such"] = step_ns["median"] / predicted["step_ns"] - 1
            predicted_ratio = predicted["ratio_to_single"]["ratio"]
            found[each["name"], "to single"] = ratio["median"] / predicted_ratio - 1
        elif each["name"] in _SPLITS:
            print(f"{name:20} {each['name']:16} {each['failure']['message']}", flush=True)
    return found


if __name__ == "__main__":
    main()
