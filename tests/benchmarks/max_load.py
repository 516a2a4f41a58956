"""The least largest load of the graphs of Tarnawski et al. (2020), contiguous and not.

Prints, for every JSON file under the folder that is given, what was found, its bound, the gap
between them, and how long it took; beside it the value of ``results.csv`` in the folder above, if
there is one. Nothing is taken from there.
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

_REFERENCE = {True: "contig_UB", False: "noncontig_UB"}


def main() -> None:
    """Run both modes over a folder of graphs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds graphs in the format of msr-fiddle")
    parser.add_argument("--contiguous-s", type=float, default=60.0, help="time limit of each")
    parser.add_argument("--non-contiguous-s", type=float, default=100.0, help="time limit of each")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    reference = _reference(words.folder.parent / "results.csv")
    for contiguous, limit_s in ((True, words.contiguous_s), (False, words.non_contiguous_s)):
        print("contiguous" if contiguous else "not contiguous")
        print(f"{'graph':40} {'value':>10} {'bound':>10} {'gap':>6} {'stop':>6} {'s':>6} reference")
        for path in sorted(words.folder.rglob("*.json")):
            graph = path.relative_to(words.folder).as_posix()
            problem = read_fiddle(json.loads(path.read_bytes()))
            effort = Effort(units=float("inf"), seed=words.seed, time_limit_s=limit_s)
            start = time.perf_counter()
            found = max_load(problem, effort, contiguous=contiguous)
            seconds = time.perf_counter() - start
            value = found.objective_value
            gap = "" if not value else f"{1 - found.lower_bound / value:.1%}"
            print(
                f"{graph:40} {'none' if value is None else f'{value:.4f}':>10} "
                f"{found.lower_bound:10.4f} {gap:>6} {found.stopped_by:>6} {seconds:6.1f} "
                f"{reference.get((graph, contiguous), '')}",
                flush=True,
            )


def _reference(path: Path) -> dict[tuple[str, bool], str]:
    """Return the values by graph and mode."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        (row["graph"], contiguous): row[column]
        for row in rows
        for contiguous, column in _REFERENCE.items()
    }


if __name__ == "__main__":
    main()
