"""PA307's saving against what it is: random recommenders with Adam, and with its page's LazyAdam.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/table_updates.py --seeds 1-8

A seed draws tables, rows, widths and a batch. On one worker the model with Keras' `Adam` is run and
profiled, as `advisor analyze` does it, and what PA307 would save of its shortest step is simulated;
only then does the model with `LazyAdam` and `RowEmbedding` run, in turns with the first one.
Printed is the share of a step that is saved, simulated (none where PA307 is not found), and as
measured: by the shortest steps, since other work only ever adds, and by the median over rounds.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from finding_evidence import evidence_of
from model_tracing import traced_model
from silent import Silent

from placement_advisor.analysis.findings import step_rules
from placement_advisor.analysis.findings.rules import finding_page
from placement_advisor.candidates.references import on_device
from placement_advisor.cost.measured_costs import dispatch_overhead_ns, measured_costs
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import preload
from placement_advisor.testbed.benchmark import Benchmark
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.units import format_ns

LAZY_ADAM = re.findall(r"```python\n(.*?)```", finding_page("PA307"), re.DOTALL)[0]
_MODEL = """
import numpy as np
{code}
random = np.random.default_rng({seed})
ids = [keras.Input(({read},), dtype="int32") for _ in range({tables})]
rows = [keras.layers.Flatten()({layer}({vocabulary}, {width})(each)) for each in ids]
hidden = keras.layers.Concatenate()(rows) if len(rows) > 1 else rows[0]
for width in {hidden}:
    hidden = keras.layers.Dense(width, activation="relu")(hidden)
model = keras.Model(ids, keras.layers.Dense(1)(hidden))
model.compile(optimizer={optimizer}, loss="mse")
x = [random.integers({vocabulary}, size=({batch}, {read})).astype("int32") for _ in ids]
inputs = (x, random.normal(size=({batch}, 1)).astype("float32"))
"""
_STEPS = 10
_LAZY = "lazy"


def main() -> None:
    """Print a line for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", default="1-8", help="the first and the last (1-8)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    preload()
    for seed in range(first, last + 1):
        drawn = _drawn(seed)
        with tempfile.TemporaryDirectory() as folder:
            step_ns, simulated, rounds = _compared(Path(folder), drawn, options.rounds)
        least = min(map(min, rounds[1])) / min(map(min, rounds[0]))
        ratios = [median(lazy) / median(adam) for adam, lazy in zip(*rounds, strict=True)]
        print(
            f"| {seed} | {drawn['tables']} x {drawn['vocabulary']} x {drawn['width']} | "
            f"{drawn['batch']} x {drawn['read']} | {format_ns(step_ns)} | {1 - simulated:.0%} | "
            f"{1 - least:.0%} | {1 - median(ratios):.0%} |",
            flush=True,
        )


def _drawn(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    return {
        "seed": seed,
        "tables": draw.randint(1, 3),
        "vocabulary": round(10 ** draw.uniform(4, 5.3)),
        "width": draw.choice([8, 16, 32, 64]),
        "read": draw.choice([1, 4, 16]),
        "batch": draw.choice([32, 128, 256]),
        "hidden": [draw.choice([32, 128, 512]) for _ in range(draw.randint(1, 3))],
    }


def _files(folder: Path, drawn: dict[str, Any]) -> tuple[Path, Path]:
    written = []
    for name, optimizer, layer in (
        ("adam", "keras.optimizers.Adam()", "keras.layers.Embedding"),
        ("lazy", "LazyAdam()", "RowEmbedding"),
    ):
        path = folder / f"{name}.py"
        path.write_text(_MODEL.format(code=LAZY_ADAM, optimizer=optimizer, layer=layer, **drawn))
        written.append(path)
    return written[0], written[1]


def _compared(
    folder: Path, drawn: dict[str, Any], rounds: int
) -> tuple[int, float, tuple[list[list[int]], ...]]:
    """Return the shortest step, the simulated share that is left, and steps of both by round."""
    testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 1), scratch=folder)
    graphs = {}
    for program, path in zip((STEP, _LAZY), _files(folder, drawn), strict=True):
        bundle = folder / path.stem
        bundle.mkdir()
        traced = traced_model(path, "train", bundle)
        assert traced is not None
        graphs[program] = traced.graph
        testbed.add_program(program, bundle, traced.graph)
    name = testbed.plan.devices[0].name
    alone = on_device(graphs[STEP], name)
    try:
        testbed.start()
        trial = Benchmark(testbed, steps=_STEPS, watcher=Silent())
        entry = trial.enter(alone)
        trial.examine(entry)
        assert entry.profile is not None, entry.failure
        step_ns = min(entry.warmup_ns)
        simulated = _simulated(graphs[STEP], name, entry.profile.op_ns, step_ns)
        device_of = on_device(graphs[_LAZY], name).device_of
        _answer(testbed.prepare(_LAZY, device_of, _LAZY))
        steps: tuple[list[list[int]], ...] = [], []
        for number in range(1 + rounds):
            for label, found in zip((alone.label, _LAZY), steps, strict=True):
                found.append(_answer(testbed.run_steps(label, number, 1 + _STEPS))[1:])
    finally:
        testbed.close()
    return step_ns, simulated, (steps[0][1:], steps[1][1:])


def _simulated(graph: Any, name: str, op_ns: dict[str, int], step_ns: int) -> float:
    """Return the share of a step that PA307 leaves, 1 if it finds nothing."""
    costs = measured_costs(graph, op_ns)
    launch_ns = dispatch_overhead_ns(
        in_ops_ns=step_ns, compute_ns=costs.total_ns, op_count=len(costs.costs)
    )
    device = Device(name=name, kind="CPU", launch_overhead_ns=launch_ns)
    cluster = Cluster(devices=(device,), links=())
    evidence = evidence_of(graph, costs.everywhere(cluster), cluster=cluster)
    savings_ns = [
        finding.saving.saving_ns if finding.saving else 0
        for finding in step_rules.find_table_updated_whole(evidence)
    ]
    assert evidence.alone is not None
    assert evidence.alone.predicted is not None
    return 1 - sum(savings_ns) / evidence.alone.predicted.step_ns


def _answer(answer: Any) -> Any:
    if isinstance(answer, CallFailure):
        raise SystemExit(f"{answer.message}\n{answer.output_tail}")
    return answer


if __name__ == "__main__":
    main()
