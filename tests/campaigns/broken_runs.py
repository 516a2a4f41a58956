"""Broken runs: does verification catch each, and let every correct run pass?

A case is a step, an optimizer, a learning rate, a way to spread the step over two devices (ops
placed at random, or the batch split), and what is wrong with it, if anything. What runs is edited
where a placer or splitter with that mistake would have made it; what judges is the code of
`advisor analyze`, in this process, on logical CPUs.
"""

import random
import shutil
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from breakages import PLACED, SPLIT, Graph, reordered
from campaign import run_campaign
from random_models import random_model
from verified_steps import BATCH, OPTIMIZERS, STEPS, model_file

from placement_advisor.candidates.batch_split.split_graph import FAMILY
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Role
from placement_advisor.processes.calls import CallFailure
from placement_advisor.testbed.testbed import STEP
from placement_advisor.tf import placed_step
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.run import runner
from placement_advisor.tf.split_step import split_step
from placement_advisor.tf.step_limit import MOST_LIMIT_S
from placement_advisor.tf.trace import tracer

# Four models that nobody chose, drawn after the code was frozen; every second has dropout or batch
# normalization.
FIRST_SEED = 814009
SEEDS = tuple(f"seed-{FIRST_SEED + number}" for number in range(4))
_NEEDS = ({"dropout"}, (), {"batch_norm"}, ())
_SMALL_MS = 2.0
RATES = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
_WAYS = ("place", "batch")
_CORRECT = 200
_STEPS = 4
_PLACES = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}
_SECOND = _PLACES["cpu:1"]


def cases():
    """Return every breakage of every step once for each optimizer, and the correct runs."""
    draw = random.Random(19)
    broken = [
        f"{way} {breakage}"
        for way in _WAYS
        for breakage in (*PLACED, *(SPLIT if way == "batch" else ()))
    ]
    found = [
        f"{step} {optimizer} {rate} {what}"
        for step, optimizer, what in product(STEPS, OPTIMIZERS, broken)
        for rate in (draw.choice(RATES[:3]), draw.choice(RATES[3:]))
    ]
    # A model that was drawn is traced anew for each rate, so that there is one for all cases.
    rates = {each: draw.choice(RATES) for each in product(SEEDS, OPTIMIZERS)}
    found += [f"{' '.join(each)} {rate} {what}" for each, rate in rates.items() for what in broken]
    each = -(-_CORRECT // (len(STEPS + SEEDS) * len(OPTIMIZERS) * len(_WAYS)))
    found += [
        f"{step} {optimizer} {rates.get((step, optimizer)) or draw.choice(RATES)} {way} "
        f"correct-{number}"
        for step, optimizer, way in product(STEPS + SEEDS, OPTIMIZERS, _WAYS)
        for number in range(each)
    ]
    # Those of one traced step come one after the other, and of these those of one reference.
    return sorted(found, key=lambda case: case.split()[:3])


class _Steps:
    """A traced step, whole and with its batch split."""

    def __init__(self, step, optimizer, rate):
        self.folder = Path(tempfile.mkdtemp())
        path = self.folder / "model_file.py"
        path.write_text(_text(step, optimizer, rate))
        tracer.load_workload(ModelSource(path=str(path)))
        loaded = tracer.loaded_workload()
        whole = tracer.trace_step(path, loaded)
        self.whole = whole
        self.bundles = {STEP: whole.flat.bundle(whole.batches())}
        self.graphs = {STEP: whole.graph}
        half = (loaded.batch_size or BATCH) // 2
        try:
            split = split_step(whole, [half, half])
            self.bundles[FAMILY] = split.bundle()
            self.graphs[FAMILY] = split.graphs[FAMILY].graph
        except BatchSplitError as error:
            self.why = error.message
        self._rate = ""

    def open(self, rate):
        """Open both programs at a learning rate, and take the whole step as the reference."""
        if rate == self._rate:
            return
        self._rate = rate
        for label in ("single", "candidate"):
            runner.discard(label)
        runner.open_runner("", _PLACES, _PLACES["cpu:0"], len(_PLACES))
        for name, bundle in self.bundles.items():
            for variable, value in bundle.variables.items():
                if variable.endswith("learning_rate"):
                    bundle.variables[variable] = np.asarray(float(rate), value.dtype)
            (self.folder / name).mkdir(exist_ok=True)
            bundle.save(self.folder / name)
            self.open_program(name)
        alone = dict.fromkeys((op.name for op in self.whole.graph.placed_ops), "cpu:0")
        _must(runner.prepare("single", alone, STEP))
        _must(runner.verify("single", _STEPS))

    def open_program(self, name):
        runner.open_program(name, str(self.folder / name), self.graphs[name], MOST_LIMIT_S)

    def trained(self):
        changed = {
            op.variable
            for op in self.whole.graph.ops
            if op.role is Role.UPDATE and op.variable and op.kind.startswith(("Assign", "Resource"))
        }
        return sorted(
            name
            for name, value in self.bundles[STEP].variables.items()
            if name in changed and value.dtype.kind == "f" and value.size > 1
        )


def _text(step, optimizer, rate):
    if step not in SEEDS:
        return model_file(step, optimizer, float(rate))
    wanted = _NEEDS[SEEDS.index(step)]
    model = random_model(
        int(step.partition("-")[2]),
        needs={"training", optimizer, *wanted},
        without=() if wanted else ("dropout", "batch_norm"),
        learning_rate=float(rate),
        max_ms=_SMALL_MS,
    )
    return model.text


_last = {}  # Steps by name and optimizer: those of the last case.


def _steps(step, optimizer, rate):
    if (step, optimizer) not in _last:
        for old in _last.values():
            shutil.rmtree(old.folder)
        _last.clear()
        _last[step, optimizer] = _Steps(step, optimizer, rate)
    return _last[step, optimizer]


def examine(case):
    """Return what verification says of a case: caught, verified, or neither (`unverified`)."""
    step, optimizer, rate, way, what = case.split()
    steps = _steps(step, optimizer, rate)
    steps.open(rate)
    draw = random.Random(case)
    program = STEP if way == "place" else FAMILY
    if program not in steps.graphs:
        return {"verdict": "none", "why": steps.why}
    edit = PLACED.get(what) or SPLIT.get(what) or reordered
    names = steps.trained()
    draw.shuffle(names)
    for variable in names:
        try:
            return {"variable": variable, **_judged(steps, program, edit, variable, draw)}
        except LookupError as error:
            why = str(error)
    return {"verdict": "none", "why": why}


def _judged(steps, program, edit, variable, draw):
    seed = draw.random()
    place = _at_random if program == STEP else _by_replica
    device_of = place(steps.graphs[program], draw)
    untouched = placed_step.placed_graph

    def broken(bundle, wanted, host):
        graph_def = untouched(bundle, wanted, host)
        # A splitter's mistake is in every run of the split step, a placer's in that of a placement.
        is_split = any(node.name.startswith("replica_1/") for node in graph_def.node)
        is_placed = any(node.device == _SECOND for node in graph_def.node)
        if is_placed or (is_split and edit is not PLACED["reseeded"]):
            edit(Graph(graph_def), variable, random.Random(seed))
        return graph_def

    placed_step.placed_graph = broken
    try:
        _must(runner.prepare("candidate", device_of, program))
        found = _must(runner.verify("candidate", _STEPS))
    finally:
        placed_step.placed_graph = untouched
        runner.discard("candidate")
        # What this mistake made of the split step on one device is not to be kept.
        steps.open_program(program)
    verdict = "refused" if found.wrong else "unverified" if found.unverified else "verified"
    return {
        "verdict": verdict,
        "wrong": found.wrong,
        "relative_difference": found.relative_difference,
        "unverified": found.unverified[:3],
    }


def _must(answer):
    if isinstance(answer, CallFailure):
        if "cycle" in answer.message:
            raise LookupError("two variables wait for each other: their updates cannot be swapped")
        raise AssertionError(answer.message)
    return answer


def _at_random(graph, draw):
    """Return a device for each op; those of a variable stand together."""
    home = {}
    drawn = ((op, draw.choice(sorted(_PLACES))) for op in graph.placed_ops)
    return {op.name: home.setdefault(op.variable or op.name, place) for op, place in drawn}


def _by_replica(graph, _):
    """Return the first device for what is shared and the first replica, else the second."""
    return {
        op.name: "cpu:1" if op.name.startswith("replica_1/") and not op.variable else "cpu:0"
        for op in graph.placed_ops
    }


def table(results):
    """Return how many of each breakage were caught, and how many correct runs passed."""
    counts = {}
    for result in results:
        _, _, _, way, what = result["case"].split()
        counts.setdefault(f"{what.partition('-')[0]} ({way})", Counter())[result["verdict"]] += 1
    lines = ["| run | cases | refused | unverified | verified |", "|---|---|---|---|---|"]
    for what in sorted(counts, key=lambda name: (name.startswith("correct"), name)):
        count = counts[what]
        judged = [count[verdict] for verdict in ("refused", "unverified", "verified")]
        lines.append(f"| {what} | {' | '.join(map(str, (sum(judged), *judged)))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_campaign("broken_runs", cases(), examine, table)
