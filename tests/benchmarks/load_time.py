"""What more time finds: the least largest load, not contiguous, of layer graphs with branches.

Prints the value after each time limit, and how far it is above the best of its line, for every JSON
file that is given and for graphs of `inception_graphs`, one for each seed. Each limit is a search
of its own.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from inception_graphs import inception_document

from placement_advisor.fiddle_file import read_fiddle
from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.max_load import max_load


def main() -> None:
    """Search each graph once for each limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", type=Path, nargs="*", help="in the format of msr-fiddle")
    parser.add_argument("--blocks", type=int, default=10, help="of each generated graph")
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help="of generated graphs")
    parser.add_argument("--limits-s", type=float, nargs="+", default=[60.0, 600.0])
    words = parser.parse_args()
    documents = {path.stem: json.loads(path.read_bytes()) for path in words.graphs}
    for seed in words.seeds:
        name = f"inception-{words.blocks}-{seed}"
        documents[name] = inception_document(words.blocks, seed=seed)
    for name, document in documents.items():
        problem = read_fiddle(document)
        print(name, flush=True)
        values = []
        for limit_s in words.limits_s:
            effort = Effort(units=float("inf"), time_limit_s=limit_s)
            found = max_load(problem, effort, contiguous=False)
            assert found.objective_value is not None
            values.append(found.objective_value)
            print(
                f"  {limit_s:5.0f} s: {values[-1]:.4f}, bound {found.lower_bound:.4f}, "
                f"load average {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        over = ", ".join(f"{value / min(values) - 1:.2%}" for value in values)
        print(f"  above the best of these: {over}", flush=True)


if __name__ == "__main__":
    main()
