"""Searches of one problem in other units and in another order: no crash, and one answer.

Operator graphs of BERT, layer graphs like those of Inception and small random DAGs, as made up by
`bert_graphs`, `inception_graphs` and `small_dags`; with ``ADVISOR_GRAPHS``, a folder, also all
files of msr-fiddle in it. Each is searched as it is and changed: times in other units, sizes and
memory in other units, nodes and edges in another order. Two answers agree if each value is no less
than the other's bound, and if two values that are both proved are equal to within a millionth each.
In units that are a power of two apart, all numbers are the same, and so has to be the answer.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from bert_graphs import bert_document
from campaign import run_campaign
from inception_graphs import inception_document
from small_dags import drawn_dag

from placement_advisor.solvers.effort import PROOF_TOLERANCE, Effort, Stop
from placement_advisor.solvers.fiddle_file import read_fiddle
from placement_advisor.solvers.makespan.makespan import least_makespan
from placement_advisor.solvers.throughput.max_load import max_load

# Enough to prove most of the small ones and some of the large ones; each case is searched twice.
_EFFORT = Effort(units=3.0)
_MADE_UP = (
    *(f"bert-{layers}-{seed}" for layers in (2, 12) for seed in (0, 1)),
    *(f"inception-{blocks}-{seed}" for blocks in (3, 11) for seed in (0, 1)),
    *(f"dag-{seed}" for seed in range(6)),
)
_GIVEN = os.environ.get("ADVISOR_GRAPHS")
_OBJECTIVES = ("contiguous", "any")
_CHANGES = ("times-2^-20", "times-2^20", "times-1e-6", "times-7e8", "sizes-1000", "order", "all")
# Whoever counts in units of 2^20 has the same digits.
_SAME_DIGITS = ("times-2^-20", "times-2^20")
# Times of some files are in the hundreds: with this they are far beyond whole numbers of 32 bits.
_FACTORS = {
    "times-2^-20": 2.0**-20,
    "times-2^20": 2.0**20,
    "times-1e-6": 1e-6,
    "times-7e8": 7e8,
    "all": 1e3 / 7,
}


def cases() -> list[str]:
    """Return all cases: graph, objective, change."""
    given = [] if _GIVEN is None else sorted(Path(_GIVEN).rglob("*.json"))
    graphs = [*_MADE_UP, *(f"file:{path}" for path in given)]
    return [
        f"{graph} {objective} {change}"
        for graph in graphs
        for objective in (*_OBJECTIVES, *(["latency"] if graph.startswith("dag") else []))
        for change in _CHANGES
    ]


def examine(case: str) -> dict[str, Any]:
    """Return whether the answers to a problem and to the changed problem agree."""
    graph, objective, change = case.rsplit(" ", 2)
    factor = _FACTORS.get(change, 1.0)
    base = _answer(graph, objective, None)
    found = _answer(graph, objective, change)
    tolerance = 1 + 2 * PROOF_TOLERANCE
    if base["value"] is None or found["value"] is None:
        agree = math.isinf(base["bound"]) == math.isinf(found["bound"])
        ratio = None
    else:
        ratio = found["value"] / factor / base["value"]
        agree = (
            found["bound"] / factor <= base["value"] * tolerance
            and base["bound"] <= found["value"] / factor * tolerance
        )
        if base["proved"] and found["proved"]:
            agree = agree and 1 / tolerance <= ratio <= tolerance
        if change in _SAME_DIGITS:
            agree = agree and math.isclose(ratio, 1.0, rel_tol=1e-12)
    return {
        "agree": agree,
        "ratio": ratio,
        "proved": [base["proved"], found["proved"]],
        "distrusted": Stop.SOLVER.value in (base["stop"], found["stop"]),
    }


@cache
def _answer(graph: str, objective: str, change: str | None) -> dict[str, Any]:
    document = _document(graph)
    if change is not None:
        document = _changed(document, change, random.Random(f"{graph} {change}"))
    problem = read_fiddle(document)
    if objective == "latency":
        found = least_makespan(problem, _EFFORT)
    else:
        found = max_load(problem, _EFFORT, contiguous=objective == "contiguous")
    return {
        "value": found.objective_value,
        "bound": found.lower_bound,
        "proved": found.is_proven,
        "stop": found.stopped_by.value,
    }


def _document(graph: str) -> dict[str, Any]:
    if graph.startswith("file:"):
        document: dict[str, Any] = json.loads(Path(graph.removeprefix("file:")).read_bytes())
        return document
    kind, *numbers = graph.split("-")
    if kind == "dag":
        return drawn_dag(int(numbers[0])).document()
    size, seed = map(int, numbers)
    return (bert_document if kind == "bert" else inception_document)(size, seed=seed)


def _changed(document: dict[str, Any], change: str, rng: random.Random) -> dict[str, Any]:
    """Return the problem in other words."""
    time = _FACTORS.get(change, 1.0)
    size = 1000 if change in ("sizes-1000", "all") else 1
    nodes = [
        {
            **node,
            "fpgaLatency": node["fpgaLatency"] * time,
            "cpuLatency": node["cpuLatency"] * time,
            "size": math.ceil(node["size"]) * size,
        }
        for node in document["nodes"]
    ]
    edges = [{**edge, "cost": edge["cost"] * time} for edge in document["edges"]]
    if change in ("order", "all"):
        rng.shuffle(nodes)
        rng.shuffle(edges)
    room = int(document["maxSizePerFPGA"]) * size
    return {**document, "nodes": nodes, "edges": edges, "maxSizePerFPGA": room}


def table(results: list[dict[str, Any]]) -> str:
    """Return by change how many answers agree, and how they differ where nothing is proved."""
    by_change: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        by_change[result["case"].rsplit(" ", 1)[1]].append(result)
    rows = [
        "| change | cases | agree | both proved | equal to a millionth | largest difference | "
        "solver distrusted |",
        "|---|---|---|---|---|---|---|",
    ]
    for change, each in by_change.items():
        ratios = [result["ratio"] for result in each if result["ratio"] is not None]
        apart = [abs(ratio - 1) for ratio in ratios]
        rows.append(
            f"| {change} | {len(each)} | {sum(result['agree'] for result in each)} "
            f"| {sum(all(result['proved']) for result in each)} "
            f"| {sum(gap <= 2 * PROOF_TOLERANCE for gap in apart)} "
            f"| {max(apart, default=0.0):.2%} "
            f"| {sum(result['distrusted'] for result in each)} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    run_campaign("rescalings", cases(), examine, table)
