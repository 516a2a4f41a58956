"""Broken runs: does verification catch each, and let every correct run pass?

A case is a step, an optimizer, a learning rate, a way to spread the step over two devices (ops
placed at random, or the batch split), and what is wrong with it, if anything. What runs is edited
where a placer or splitter with that mistake would have made it; what judges is the code of
`advisor analyze`, in this process, on logical CPUs.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from breakages import PLACED, SPLIT, Graph, reordered
from campaign import run_campaign
from verified_steps import BATCH, OPTIMIZERS, STEPS, model_file

from placement_advisor.batch_split.split_graph import FAMILY
from placement_advisor.op import Role
from placement_advisor.placement import placed_ops
from placement_advisor.testbed import STEP
from placement_advisor.tf import placer, runner
from placement_advisor.tf.answers import RunFailure
from placement_advisor.tf.batch_split import split_step
from placement_advisor.tf.loader import load
from placement_advisor.tf.tracer import seed_everything, trace_step

if TYPE_CHECKING:
    from placement_advisor.graph import OpGraph

RATES = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
_WAYS = ("place", "batch")
_CORRECT = 200
_STEPS = 4
_PLACES = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}
_SECOND = _PLACES["cpu:1"]


def cases() -> list[str]:
    """Return every breakage of every step once for each optimizer, and the correct runs."""
    found = []
    draw = random.Random(19)
    for step in STEPS:
        for optimizer in OPTIMIZERS:
            for way in _WAYS:
                for breakage in (*PLACED, *(SPLIT if way == "batch" else ())):
                    for rate in (draw.choice(RATES[:3]), draw.choice(RATES[3:])):
                        found.append(f"{step} {optimizer} {rate} {way} {breakage}")
    each = -(-_CORRECT // (len(STEPS) * len(OPTIMIZERS) * len(_WAYS)))
    found += [
        f"{step} {optimizer} {draw.choice(RATES)} {way} correct-{number}"
        for step in STEPS
        for optimizer in OPTIMIZERS
        for way in _WAYS
        for number in range(each)
    ]
    # Those of one traced step come one after the other.
    return sorted(found, key=lambda case: case.split()[:2])


class _Steps:
    """A traced step, whole and with its batch split."""

    def __init__(self, step: str, optimizer: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        path = self.folder / "model_file.py"
        path.write_text(model_file(step, optimizer, 0.01))
        seed_everything()
        loaded = load(str(path), name=None, mode=None, batch_size=None)
        whole = trace_step(path, loaded)
        split = split_step(whole, [BATCH // 2, BATCH // 2])
        self.whole, self.split = whole, split
        self.bundle, self.split_bundle = whole.flat.bundle(whole.batches()), split.bundle()
        self.graphs = {STEP: whole.graph, FAMILY: split.graphs[FAMILY].graph}
        self.own = bool(split.own)

    def open(self, rate: float) -> None:
        """Open both programs at a learning rate, and take the whole step as the reference."""
        runner.open_runner("", _PLACES, _PLACES["cpu:0"], len(_PLACES))
        for name, bundle in ((STEP, self.bundle), (FAMILY, self.split_bundle)):
            for variable, value in bundle.variables.items():
                if variable.endswith("learning_rate"):
                    bundle.variables[variable] = np.asarray(rate, value.dtype)
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            bundle.save(folder)
            runner.open_program(name, str(folder), self.graphs[name])
        runner._reference = None
        alone = dict.fromkeys((op.name for op in placed_ops(self.whole.graph)), "cpu:0")
        _must(runner.prepare("single", alone, STEP))
        _must(runner.verify("single", _STEPS))

    def trained(self) -> list[str]:
        """Return the variables that gradients change."""
        changed = {
            op.variable
            for op in self.whole.graph.ops
            if op.role is Role.UPDATE and op.variable and op.kind.startswith(("Assign", "Resource"))
        }
        return sorted(
            name
            for name, value in self.bundle.variables.items()
            if name in changed and value.dtype.kind == "f" and value.size > 1
        )


_last: list[tuple[tuple[str, str], _Steps]] = []


def _steps(step: str, optimizer: str) -> _Steps:
    if not _last or _last[0][0] != (step, optimizer):
        for _, old in _last:
            shutil.rmtree(old.folder)
        _last[:] = [((step, optimizer), _Steps(step, optimizer))]
    return _last[0][1]


def examine(case: str) -> dict[str, Any]:
    """Return what verification says of a case: caught, verified, or neither (`unverified`)."""
    step, optimizer, rate, way, what = case.split()
    steps = _steps(step, optimizer)
    steps.open(float(rate))
    draw = random.Random(case)
    program = STEP if way == "place" else FAMILY
    edit = PLACED.get(what) or SPLIT.get(what) or reordered
    names = steps.trained()
    draw.shuffle(names)
    for variable in names:
        try:
            return {"variable": variable, **_judged(steps, program, edit, variable, draw)}
        except LookupError as error:
            why = str(error)
    return {"verdict": "none", "why": why}


def _judged(
    steps: _Steps, program: str, edit: Any, variable: str, draw: random.Random
) -> dict[str, Any]:
    seed = draw.random()
    place = _at_random if program == STEP else _by_replica
    device_of = place(steps.graphs[program], draw)
    untouched = placer.placed_graph

    def broken(bundle: Any, wanted: Any, host: str) -> Any:
        graph_def = untouched(bundle, wanted, host)
        # A splitter's mistake is in every run of the split step, a placer's in that of a placement.
        is_split = any(node.name.startswith("replica_1/") for node in graph_def.node)
        is_placed = any(node.device == _SECOND for node in graph_def.node)
        if is_placed or (is_split and edit is not PLACED["reseeded"]):
            edit(Graph(graph_def), variable, random.Random(seed))
        return graph_def

    placer.placed_graph = broken
    try:
        _must(runner.prepare("candidate", device_of, program))
        return verdict(runner.verify("candidate", _STEPS), steps, program)
    finally:
        placer.placed_graph = untouched
        runner.discard("candidate")


def verdict(answer: Any, steps: _Steps, program: str) -> dict[str, Any]:
    """Return what the comparison says."""
    may_differ = program == FAMILY and steps.own
    is_wrong = not answer.relative <= 1e-3 and not may_differ
    return {"verdict": "refused" if is_wrong else "verified", "of": answer.tensor}


def _must(answer: Any) -> Any:
    if isinstance(answer, RunFailure):
        if "cycle" in answer.message:
            raise LookupError("two variables wait for each other: their updates cannot be swapped")
        raise AssertionError(answer.message)
    return answer


def _at_random(graph: OpGraph, draw: random.Random) -> dict[str, str]:
    """Return a device for each op; those of a variable stand together."""
    home: dict[str, str] = {}
    found = {}
    for op in placed_ops(graph):
        device = draw.choice(sorted(_PLACES))
        found[op.name] = home.setdefault(op.variable, device) if op.variable else device
    return found


def _by_replica(graph: OpGraph, _: random.Random) -> dict[str, str]:
    """Return the first device for what is shared and the first replica, else the second."""
    return {
        op.name: "cpu:1" if op.name.startswith("replica_1/") and not op.variable else "cpu:0"
        for op in placed_ops(graph)
    }


def table(results: list[dict[str, Any]]) -> str:
    """Return how many of each breakage were caught, and how many correct runs passed."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        _, _, _, way, what = result["case"].split()
        counts.setdefault(f"{what.partition('-')[0]} ({way})", Counter())[result["verdict"]] += 1
    lines = ["| run | cases | refused | unverified | verified |", "|---|---|---|---|---|"]
    for what in sorted(counts, key=lambda name: (name.startswith("correct"), name)):
        count = counts[what]
        judged = count["refused"] + count["unverified"] + count["verified"]
        lines.append(
            f"| {what} | {judged} | {count['refused']} | {count['unverified']} "
            f"| {count['verified']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_campaign("broken_runs", cases(), examine, table)
