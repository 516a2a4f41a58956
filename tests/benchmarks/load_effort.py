"""What more effort brings where the load need not be contiguous: given graphs, and made-up ones.

Prints, for every JSON file under the folders that are given and for layer graphs with branches made
of each seed, the least largest load after each effort, in units, and by how much it ends above the
last of them; then the bound.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from inception_graphs import inception_document

from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.fiddle_file import read_fiddle
from placement_advisor.solvers.throughput.max_load import max_load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.solvers.problem import Problem

_BLOCKS = (6, 8, 10, 12)


def main() -> None:
    """Search each graph with each effort."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="hold graphs in msr-fiddle's format")
    parser.add_argument("--units", type=float, nargs="+", default=[60.0, 600.0])
    parser.add_argument("--made-up", type=int, nargs="*", default=[], metavar="SEED")
    words = parser.parse_args()
    print("graph, groups:", *(f"value of {units:g} units, seconds of CPU" for units in words.units))
    for name, problem in _problems(words.folders, words.made_up):
        values = []
        for units in words.units:
            start = time.process_time()
            found = max_load(problem, Effort(units=units, seed=0), contiguous=False)
            assert found.objective_value is not None
            values.append(found.objective_value)
            print(
                f"{name:30} {len(problem.groups):5} {units:6g} {values[-1]:10.4f} "
                f"{found.lower_bound:10.4f} {found.stopped_by:>6} "
                f"{time.process_time() - start:6.0f}",
                flush=True,
            )
        print(f"{name:30} above the last:", *(f"{v / values[-1] - 1:.3%}" for v in values[:-1]))


def _problems(folders: list[Path], seeds: list[int]) -> Iterator[tuple[str, Problem]]:
    for folder in folders:
        for path in sorted(folder.rglob("*.json")):
            yield path.stem, read_fiddle(json.loads(path.read_bytes()))
    for i, seed in enumerate(seeds):
        blocks = _BLOCKS[i % len(_BLOCKS)]
        yield f"{blocks} blocks, seed {seed}", read_fiddle(inception_document(blocks, seed=seed))


if __name__ == "__main__":
    main()
