"""Whether verdicts on the sample models agree with a fresh measurement, as a Markdown table.

Usage: verdicts.py FOLDER [--runs N] [MODEL ...]

Each run is an `advisor analyze` of its own, into FOLDER/MODEL-RUN; what is there already is not run
again. A row has the verdict of every run with the measured speed-up of the split that it is about,
the bound and the searched placement of the last run, both over one device, beside the best of the
other families as predicted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parents[2] / "sample_models"
SEARCHED = "searched"


def analysed(model: str, run: int, folder: Path) -> dict[str, Any]:
    """Return the analysis of one run, from its folder if it is there."""
    output = folder / f"{model}-{run}"
    if not (output / "analysis.json").exists():
        command = [Path(sys.executable).with_name("advisor"), "analyze", SAMPLES / f"{model}.py"]
        subprocess.run(
            [*map(str, command), "-o", str(output)], check=True, stdout=subprocess.DEVNULL
        )
    content: dict[str, Any] = json.loads((output / "analysis.json").read_text())
    return content


def verdict(analysis: dict[str, Any]) -> str:
    """Return the verdict in short."""
    answer = analysis["recommendation"]
    is_proved = answer["verdict"] == "stay-single" and analysis["bound"]["proves_single"]
    speedup = answer["speedup"]
    split = "" if speedup is None else f" ({answer['candidate']} {speedup['estimate']:.2f}×)"
    return f"{answer['verdict']}{', proved' if is_proved else ''}{split}"


def row(model: str, analyses: list[dict[str, Any]]) -> list[str]:
    """Return the cells of a model."""
    last = analyses[-1]
    bound, single_ns = last["bound"], last["bound"]["single_ns"]
    predicted = {
        c["name"]: c["predicted"]["step_ns"] / single_ns
        for c in last["candidates"]
        if c["predicted"] is not None
    }
    other = min(ratio for name, ratio in predicted.items() if not name.startswith(SEARCHED))
    found = min((r for name, r in predicted.items() if name.startswith(SEARCHED)), default=other)
    return [
        model,
        *map(verdict, analyses),
        f"{bound['step_ns'] / single_ns:.2f}",
        f"{other:.3f}",
        f"{found:.3f}",
        " ".join(finding["code"] for finding in last["findings"]),
    ]


def main() -> None:
    """Print a row for each model as soon as it is known."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument(
        "models", nargs="*", default=sorted(p.stem for p in SAMPLES.glob("*.py"))
    )
    arguments.add_argument("--runs", type=int, default=2)
    asked = arguments.parse_args()
    runs = range(1, asked.runs + 1)
    headings = [
        "model",
        *(f"run {run}" for run in runs),
        "bound",
        "families",
        "searched",
        "findings",
    ]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    for model in asked.models:
        analyses = [analysed(model, run, asked.folder) for run in runs]
        print(f"| {' | '.join(row(model, analyses))} |", flush=True)


if __name__ == "__main__":
    main()
