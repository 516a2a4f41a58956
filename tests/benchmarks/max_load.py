"""The least largest load of the graphs of Tarnawski et al. (2020), if devices hold pipeline stages.

Prints, for every JSON file under the folder that is given, what was found, its bound, the gap
between them, and how long it took; beside it the value of ``results.csv`` in the folder above, if
there is one. Nothing is taken from there. For placements that need not be contiguous, see
`load_effort.py`.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path

from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.fiddle_file import read_fiddle
from placement_advisor.solvers.throughput.max_load import max_load


def main() -> None:
    """Search each graph of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds graphs in the format of msr-fiddle")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    reference = _reference(words.folder.parent / "results.csv")
    print(f"{'graph':40} {'value':>10} {'bound':>10} {'stop':>6} {'s':>6} reference")
    for path in sorted(words.folder.rglob("*.json")):
        graph = path.relative_to(words.folder).as_posix()
        problem = read_fiddle(json.loads(path.read_bytes()))
        effort = Effort(units=float("inf"), seed=words.seed, time_limit_s=words.time_limit)
        start = time.perf_counter()
        found = max_load(problem, effort, contiguous=True)
        seconds = time.perf_counter() - start
        value = found.objective_value
        print(
            f"{graph:40} {'none' if value is None else f'{value:.4f}':>10} "
            f"{found.lower_bound:10.4f} {found.stopped_by:>6} {seconds:6.1f} "
            f"{reference.get(graph, '')}",
            flush=True,
        )


def _reference(path: Path) -> dict[str, str]:
    """Return the values by graph."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["graph"]: row["contig_UB"] for row in csv.DictReader(file)}


if __name__ == "__main__":
    main()
