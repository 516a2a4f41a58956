"""Predicted against measured samples per second of steps whose batch is split.

Each sample is analysed several times, from a new process as a user would; the prediction is
written before the step runs. Errors are those of samples per second, of `batch` and `mirrored`: as
such, and in proportion to `single` of the same run, since a shared machine is faster in one second
than in the next. A cell is the median over the runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from machine_facts import machine_facts

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_FOUR = ("mnist_cnn", "deep_mnist", "deepconn", "multi_tower_ranker")
_SPLITS = ("batch", "mirrored")
_ADVISOR = "from placement_advisor.cli.app import main; main()"


def main() -> None:
    """Analyse the samples named on the command line, four without a name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=f"{', '.join(_FOUR)}")
    parser.add_argument("--runs", type=int, default=3, help="analyses of each sample (3)")
    options = parser.parse_args()
    print(machine_facts())
    medians = defaultdict(list)
    for name in options.samples or _FOUR:
        errors = defaultdict(list)
        for _ in range(options.runs):
            for key, error in _errors(_analysis(name)).items():
                errors[key].append(error)
        for (split, how), found in errors.items():
            medians[how].append(abs(median(found)))
            each = " ".join(f"{error:+.1%}" for error in found)
            print(f"{name:20} {split:9} {how:10} {median(found):+7.1%}   ({each})", flush=True)
    for how, found in medians.items():
        print(f"median of {len(found)}, {how}: {median(found):.1%}")


def _analysis(name: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        words = ("--candidates", ",".join(_SPLITS), "-o", f"{folder}/out", "-q", "--json")
        ran = subprocess.run(
            [sys.executable, "-c", _ADVISOR, "analyze", str(_SAMPLES / f"{name}.py"), *words],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(ran.stdout)


def _errors(analysis: Any) -> dict[tuple[str, str], float]:
    """Return how far samples per second were predicted too high, by candidate and by measure."""
    found = {}
    for each in analysis["candidates"]:
        measured, predicted = each["measured"], each["predicted"]
        if each["name"] in _SPLITS and measured is not None:
            step_ns, ratio = measured["step_ns"], measured["ratio_to_single"]
            found[each["name"], "as such"] = step_ns["median"] / predicted["step_ns"] - 1
            predicted_ratio = predicted["ratio_to_single"]["ratio"]
            found[each["name"], "to single"] = ratio["median"] / predicted_ratio - 1
    return found


if __name__ == "__main__":
    main()
