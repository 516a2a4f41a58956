"""Steps that do next to nothing but exchange tensors between two workers, predicted and measured.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/exchanges.py

Each step multiplies some vectors on one worker and adds them up on the other: 560 numbers each, as
a bias has, and 143,360 numbers each, as a matrix of weights; one way, both ways at once, or there
and, doubled, back. Costs of ops and copies are measured as `advisor analyze` does it. Printed are
the prediction and what was measured, the median over rounds that interleave with one device.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from model_tracing import traced_model
from silent import Silent

from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.children import preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.benchmark import Benchmark, time_in_rounds
from placement_advisor.testbed.cost_measurement import calibration_of, measure_costs
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.units import NS_PER_MS

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.answers import Traced

_ONE_WAY, _BOTH_WAYS, _AND_BACK = "one way", "both ways", "and back"
_WAYS = (_ONE_WAY, _BOTH_WAYS, _AND_BACK)
# How many small vectors and how many large ones.
_COUNTS = ((5, 0), (20, 0), (0, 1), (0, 4), (5, 1))
_SECOND = "second"
_LABEL = "exchange"
_MODEL = """
import tensorflow as tf

BATCH_SIZE = 1
sizes = {sizes}
here = [tf.Variable(tf.ones(size)) for size in sizes]
there = [tf.Variable(tf.ones(size)) for size in sizes]


@tf.function
def train_step(x):
    with tf.name_scope("first"):
        sent = [each * 1.5 for each in here]
    with tf.name_scope("{second}"):
        received = [tf.reduce_sum(each) for each in sent]
        back = [each * 1.5 for each in there] if {both} else []
        back += [each * 2.0 for each in sent] if {again} else []
        of_second = tf.add_n(received)
    with tf.name_scope("first"):
        return tf.add_n([tf.reduce_sum(x), *(tf.reduce_sum(each) for each in back)]), of_second


inputs = (tf.ones((BATCH_SIZE, 1)),)
"""


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    preload()
    errors = []
    for small, large in _COUNTS:
        for way in _WAYS:
            predicted_ns, measured_ns = _compared(small, large, way, rounds)
            errors.append(measured_ns / predicted_ns - 1)
            print(
                f"{small} small, {large} large, {way}: {predicted_ns / NS_PER_MS:.2f} / "
                f"{measured_ns / NS_PER_MS:.2f} ms ({errors[-1]:+.1%})",
                flush=True,
            )
    print(f"median {median(errors):+.1%}, of absolute values {median(map(abs, errors)):.1%}")


def _compared(small: int, large: int, way: str, rounds: int) -> tuple[int, float]:
    """Return the predicted step and the measured one, in ns."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        path, bundle = scratch / "exchange.py", scratch / "bundle"
        bundle.mkdir()
        text = _MODEL.format(
            sizes=[560] * small + [143_360] * large,
            second=_SECOND,
            both=way == _BOTH_WAYS,
            again=way == _AND_BACK,
        )
        path.write_text(text)
        traced = traced_model(path, "train", bundle)
        assert traced is not None
        testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 2), scratch=scratch)
        testbed.add_program(STEP, bundle, traced.graph)
        try:
            testbed.start()
            return _timed(testbed, traced, rounds)
        finally:
            testbed.close()


def _timed(testbed: Testbed, traced: Traced, rounds: int) -> tuple[int, float]:
    trial = Benchmark(testbed, steps=20, watcher=Silent())
    costing = measure_costs(trial, testbed.plan, traced, calibration_of(testbed, Silent()))
    graph, cluster = traced.graph, costing.cluster
    placement = _placement(graph, *cluster.device_names()[:2])
    predicted_ns = Simulator(graph, costing.costs.everywhere(cluster), cluster).step_ns(placement)
    entry = trial.enter(placement)
    time_in_rounds(trial, rounds, lambda _: None)
    assert entry.failure is None, entry.failure
    return predicted_ns, median(step for turn in entry.rounds for step in turn)


def _placement(graph: OpGraph, first: str, second: str) -> Placement:
    """Return that of each op on the device of its scope, and of variables beside their reader."""
    device_of = {}
    for op in placed_ops(graph):
        of_variable = op.role is Role.VARIABLE
        name = graph.outputs_of(op.name)[0].consumer if of_variable else op.name
        device_of[op.name] = second if name.startswith(_SECOND) else first
    return Placement(label=_LABEL, family=_LABEL, device_of=device_of, rationale="by scope")


if __name__ == "__main__":
    main()
