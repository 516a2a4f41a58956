"""A model file, loaded and traced in a child, workers on which it runs, and splits of it."""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.candidates import families, searched
from placement_advisor.candidates.by_layer import NotApplicable, place_by_layer
from placement_advisor.errors import ModelError
from placement_advisor.graph.layer_structure import depth_first
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

# Of models, as arguments of a command.
Names = Annotated[list[str] | None, typer.Argument()]
SAMPLES = Path(__file__).parents[2] / "sample_models"
_TIME_LIMIT_S = 600.0
_MIN_LAYERS = 3


def models_of(samples):
    return [SAMPLES / f"{name}.py" for name in samples or []] or sorted(SAMPLES.glob("*.py"))


def traced_model(source, bundle=None, trace=tracer.trace_workload):
    """Return the traced model, what runs it in ``bundle``; None if it has no such mode."""
    with Child("loader") as loader:
        try:
            called(loader, tracer.load_workload, source)
        except ModelError:
            return None
        return called(loader, trace, source.path, bundle and str(bundle))


@contextmanager
def on_workers(path, mode, workers=2, trace=tracer.trace_workload):
    """Give the traced model, and workers that have it as their program; None without that mode.

    ``trace`` may return more than the trace, behind it.
    """
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        bundle.mkdir()
        traced = traced_model(ModelSource(path=str(path), mode=mode), bundle, trace)
        if traced is None:
            yield None
            return
        testbed = Testbed(plan_testbed(TestbedKind.WORKERS, workers), scratch=Path(folder))
        graph = (traced[0] if isinstance(traced, tuple) else traced).graph
        testbed.add_program(STEP, bundle, graph)
        try:
            testbed.start()
            yield traced, testbed
        finally:
            testbed.close()


def called(child, function, *args):
    """Return what a child answers; end if it fails."""
    answer = child.call(function, *args, time_limit_s=_TIME_LIMIT_S)
    if isinstance(answer, CallFailure):
        raise SystemExit(f"{answer.message}\n{answer.output_tail}")
    return answer


# Cuts by layer that no family proposes, to have more to predict: after these shares of the work.
_MORE_CUTS = {"halves": [1 / 2], "sandwich": [1 / 3, 2 / 3]}


def _cut(label, graph, costs, devices):
    view = layer_view(graph)
    layers = depth_first(view)
    if len(layers) < _MIN_LAYERS:
        return NotApplicable(family=label, reason="too few layers")
    work_ns = dict.fromkeys(layers, 0)
    for op in graph.ops:
        layer = view.membership.layer_of.get(op.name) or op.layer
        if layer in work_ns and op.name in costs.costs:
            work_ns[layer] += costs.time_ns(op.name)
    whole_ns = sum(work_ns.values()) or 1
    device_of, done_ns = {}, 0
    for layer in layers:
        middle = (done_ns + work_ns[layer] / 2) / whole_ns
        done_ns += work_ns[layer]
        before = sum(middle > place for place in _MORE_CUTS[label])
        device_of[layer] = devices[before % len(devices)]
    placed = place_by_layer(graph, device_of, {}, devices[0], member=view.membership)
    return Placement(label=label, family=label, device_of=placed, rationale="")


def proposed(names, graph, costing):
    """Return what families propose, and two more cuts, by name."""
    cluster = costing.cluster
    found = families.propose(names, graph, costing.costs.everywhere(cluster), cluster)
    devices = cluster.device_names()
    return found | {label: _cut(label, graph, costing.costs, devices) for label in _MORE_CUTS}


def proposals(graph, costing, simulator, effort):
    """Yield each placement once that uses more than one device.

    They are those of all families, what a search finds, and two more cuts.
    """
    found = proposed(tuple(families.FAMILIES), graph, costing)
    costs = costing.costs.everywhere(costing.cluster)
    of_families = {name: each for name, each in found.items() if name not in _MORE_CUTS}
    dearer = MEASURED_UNCERTAINTY.copies
    best = searched.propose_searched(of_families, costs, simulator, effort, dearer=dearer)
    seen = []
    for proposal in (*of_families.values(), best, *(found[label] for label in _MORE_CUTS)):
        if isinstance(proposal, NotApplicable) or proposal.device_of in seen:
            continue
        if len(set(proposal.device_of.values())) > 1:
            seen.append(proposal.device_of)
            yield proposal
