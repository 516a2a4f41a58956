"""Makespans of small DAGs whose edges have copy costs of their own, against the plainest model.

Of each of 1,000 drawn DAGs of 3 to 12 tasks (`small_dags`) the least makespan has to be found and
proved, equal to that of a model of a few lines, within five units of effort.
"""

from __future__ import annotations

import time
from typing import Any

from campaign import run_campaign
from small_dags import drawn_dag, least_makespan_of

from placement_advisor.solvers.effort import Effort
from placement_advisor.solvers.fiddle_file import read_fiddle
from placement_advisor.solvers.makespan.makespan import least_makespan

DAGS = 1_000
# A unit is about a second of a core; what is asked for is five seconds.
_EFFORT = Effort(units=5.0)


def cases() -> list[str]:
    """Return the seeds."""
    return [str(seed) for seed in range(DAGS)]


def examine(case: str) -> dict[str, Any]:
    """Return whether the least makespan is found and proved, and the CPU time that it took."""
    dag = drawn_dag(int(case))
    problem = read_fiddle(dag.document())
    start = time.process_time()
    found = least_makespan(problem, _EFFORT)
    spent_s = time.process_time() - start
    return {
        "tasks": len(dag.work),
        "least": least_makespan_of(dag),
        "value": found.objective_value,
        "bound": found.lower_bound,
        "proved": found.is_proven,
        "core_s": round(spent_s, 3),
    }


def is_right(result: dict[str, Any]) -> bool:
    """Return whether the answer is proved and that of the plain model."""
    return bool(result["proved"] and result["value"] == result["bound"] == result["least"])


def table(results: list[dict[str, Any]]) -> str:
    """Return by size how many are right, and how long they took."""
    rows = [
        "| tasks | DAGs | proved, and equal to the plain model | seconds of a core at most |",
        "|---|---|---|---|",
    ]
    for low, high in ((3, 6), (7, 9), (10, 12)):
        each = [result for result in results if low <= result["tasks"] <= high]
        slowest = max((result["core_s"] for result in each), default=0.0)
        rows.append(
            f"| {low} to {high} | {len(each)} | {sum(map(is_right, each))} | {slowest:.2f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    examine("0")  # What is compiled when it is first called is no part of a search.
    run_campaign("small_makespans", cases(), examine, table)
