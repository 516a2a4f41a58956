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

eager_reference = RemoteModule("eager_reference")
MODELS = Path(__file__).parent / "models"
# More steps than example batches would only repeat them.
STEPS = 3
_TIME_LIMIT_S = 600.0


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
    with Child("loader") as loader:
        source = ModelSource(path=str(path), outputs=outputs)
        loader.call(tracer.load_workload, source, time_limit_s=_TIME_LIMIT_S)
        traced = loader.call(
            tracer.trace_workload, str(path), str(bundle), time_limit_s=_TIME_LIMIT_S
        )
        assert isinstance(traced, Traced), traced
        if run:
            reference = loader.call(eager_reference.results, STEPS, time_limit_s=_TIME_LIMIT_S)
            assert isinstance(reference, StepResults), reference
    return TracedModel(traced=traced, bundle=bundle, reference=reference)


def at_random(graph, devices, seed):
    """Place every op anywhere, but all that take a variable on one device."""
    choose = random.Random(seed)
    home = {}
    device_of = {}
    for op in graph.placed_ops:
        device = choose.choice(devices)
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
