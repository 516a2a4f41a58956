"""A traced model with what its own step computes, and placements of it at random."""

import random
from dataclasses import dataclass
from pathlib import Path

from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import Placement
from placement_advisor.measurement.verification import StepResults
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.deterministic_graph import relative_difference
from placement_advisor.tf.load.model_source import ModelSource

loaded_workload = RemoteModule("loaded_workload")
MODELS = Path(__file__).parent / "models"
# A text that follows begins with a new line, so that its lines have the numbers that they have.
IMPORTS = "import keras, numpy as np, tensorflow as tf"
# More steps than example batches would only repeat them.
STEPS = 3


class LimitedChild(Child):
    """A child that no test waits for longer than ten minutes."""

    def call(self, function, *args, time_limit_s=600.0):
        return super().call(function, *args, time_limit_s=time_limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModel:
    """``reference`` is what the user's step computes when it runs as it is, for `STEPS` steps."""

    traced: Traced
    bundle: Path
    reference: StepResults | None

    @property
    def graph(self):
        return self.traced.graph


def largest_difference(ours, theirs):
    """Return how far outputs and variables are apart, each relative to its largest value."""
    assert ours.state.keys() == theirs.state.keys()
    pairs = [
        *zip(ours.outputs, theirs.outputs, strict=True),
        *((value, theirs.state[name]) for name, value in ours.state.items()),
    ]
    return max(relative_difference(one, other) for one, other in pairs)


def trace(path, bundle, *, run=True, outputs=()):
    """Load and trace a model file in a child, then run its own step there if asked.

    Raises:
        AdvisorError: the file cannot be loaded or traced.
    """
    reference = None
    with LimitedChild("loader") as loader:
        loader.call(tracer.load_workload, ModelSource(path=str(path), outputs=outputs))
        traced = loader.call(tracer.trace_workload, str(path), str(bundle))
        assert isinstance(traced, Traced), traced
        if run:
            reference = loader.call(loaded_workload.reference, STEPS)
            assert isinstance(reference, StepResults), reference
    return TracedModel(traced=traced, bundle=bundle, reference=reference)


def at_random(graph, devices, seed, *, by_layer=False):
    """Place every op, or each layer with its gradients, anywhere; takers of a variable together."""
    choose = random.Random(seed)
    of_layer = {layer: choose.choice(devices) for layer in graph.layers()} if by_layer else {}
    home = {}
    device_of = {}
    for op in graph.placed_ops:
        device = of_layer.get(op.layer, devices[0]) if by_layer else choose.choice(devices)
        device_of[op.name] = home.setdefault(op.variable, device) if op.variable else device
    return Placement(
        label=f"random-{seed}", family="random", device_of=device_of, rationale=f"seed {seed}"
    )


def crossing_tensors(graph, placement):
    """Return (producer, port, source, target) of what must cross: once for each target."""
    device_of = placement.device_of
    return {
        (edge.producer, edge.port, device_of[edge.producer], device_of[edge.consumer])
        for edge in graph.edges
        if graph.op(edge.producer).role is not Role.CONSTANT
        and device_of[edge.producer] != device_of[edge.consumer]
    }
