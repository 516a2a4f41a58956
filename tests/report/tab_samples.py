"""Analyses for the tab that need no run: as many layers as wanted, with any names."""

from dataclasses import replace
from itertools import pairwise

from made_up_steps import as_simulated
from sample_analysis import sample
from sample_break_even import FOUND
from sample_values import costs_of, links_between

from placement_advisor.analysis.analysis_result import AdviceVerdict, Candidate, HowToSplit
from placement_advisor.analysis.recording import AnalysisSnapshot
from placement_advisor.cost.table import CostBasis
from placement_advisor.graph.op import Edge, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.measurement.measurement import Activity
from placement_advisor.report.tensorboard.tab_data import Tab
from placement_advisor.simulator.simulator import Simulator

DEVICES = ("worker:0", "worker:1")
_OPS = ("MatMul", "BiasAdd", "Relu")
_OP_NS = 40_000


def write_sample(logdir, layers, *, name="stack", doing=None, splits=1):
    """Write what the tab shows of a chain of layers of three ops: on one device, and cut often."""
    graph = _graph(layers)
    cluster = Cluster(
        devices=tuple(Device(name=name, kind="CPU") for name in DEVICES),
        links=links_between(DEVICES, 5_000),
    )
    costs = costs_of({op.name: _OP_NS for op in graph.ops}, CostBasis.GUESSED)
    simulator = Simulator(graph, costs.everywhere(cluster), cluster)
    candidates = tuple(
        _candidate(placement, simulator.schedule(placement))
        for placement in _placements(layers, splits)
    )
    plain = sample()
    analysis = replace(
        plain,
        title=name,
        model=replace(plain.model, path=f"{name}.py", mode="infer", ops=len(graph)),
        testbed=replace(plain.testbed, description="2 CPU stand-ins", cluster=cluster),
        as_is=None,
        candidates=candidates,
        recommendation=replace(
            plain.recommendation,
            verdict=AdviceVerdict.STAY_SINGLE,
            candidate="alternating",
            answer=f"stay single: {name}",
            headline=f"stay single: {name}",
            reasons=(f"{name} is a chain",),
        ),
        findings=(
            replace(
                plain.findings[0],
                finding=f"{layers[0]} waits",
                action=f"join {layers[0]}",
                where={"layer": layers[0]},
            ),
        ),
        warnings=(f"{name} is made up",),
        bound=None,
        how=HowToSplit(
            candidate="alternating",
            words=f"layer {layers[0]} on worker:1",
            words_in_short=f"layer {layers[0]} on worker:1",
            call='step = place(step, "placements/alternating.json")\n',
            listing=f"# {layers[0]}\nDEVICE = {{}}\n",
        ),
        break_even=FOUND,
    )
    Tab(logdir, graph).show(snapshot_of(analysis, doing) if doing else analysis)


def snapshot_of(analysis, doing, **changes):
    """Return what is shown of an analysis while it goes on."""
    names = ("title", "model", "testbed", "candidates")
    known = {name: getattr(analysis, name) for name in names}
    return AnalysisSnapshot(doing=doing, **known | changes)


def _graph(layers):
    ops = [
        Op(f"{i}/{kind}", kind, layer=layer, flops=1_000, output_bytes=(4_096,))
        for i, layer in enumerate(layers)
        for kind in _OPS
    ]
    ends = [(one.name, other.name) for one, other in pairwise(ops)]
    # A shortcut around every tenth layer, so that arrows do not all lead to the next.
    ends += [(f"{i}/Relu", f"{i + 2}/BiasAdd") for i in range(0, len(layers) - 2, 10)]
    return OpGraph(ops, [Edge(p, c, 0, 4_096) for p, c in ends])


def _placements(layers, splits):
    names = [[f"{i}/{kind}" for kind in _OPS] for i in range(len(layers))]
    return [
        Placement(
            label=label,
            family=label,
            device_of={op: DEVICES[i // every % 2] for i, ops in enumerate(names) for op in ops},
            rationale=f"another device every {every} layers",
        )
        for label, every in (
            ("single", len(layers)),
            ("alternating", 4),
            *((f"alternating-{every}", every) for every in range(5, 4 + splits)),
        )
    ]


def _candidate(placement, schedule):
    activity = Activity(
        name=f"MatMul of {placement.label}",
        calls=3,
        total_ns=9_000,
        min_ns=2_000,
        max_ns=4_000,
        is_copy=False,
    )
    return Candidate(
        name=placement.label,
        family=placement.family,
        rationale=placement.rationale,
        placement=placement,
        predicted=schedule,
        measured=as_simulated(schedule, ((schedule.step_ns,),), (activity,)),
    )
