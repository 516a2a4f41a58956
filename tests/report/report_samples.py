"""Steps and analyses for reports that need no run.

By hand, of any size and with any names; two towers, simulated on figures that a reader can follow;
chains of as many layers as wanted, as the tab shows them.
"""

from dataclasses import replace
from itertools import pairwise

from sample_analysis import sample, schedule_of
from sample_break_even import FOUND
from sample_values import costs_of, links_between, measurement, step_profile

from placement_advisor.analysis.analysis_result import AdviceVerdict, Candidate
from placement_advisor.analysis.resume import AnalysisSnapshot
from placement_advisor.cost.table import CostBasis
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, CopyWork, Device, Dispatch
from placement_advisor.measurement.measurement import compare
from placement_advisor.report.pictures.timeline_plot import simulated_spans
from placement_advisor.report.tensorboard.tab_data import Tab
from placement_advisor.simulator.simulator import Simulator

_TURNS = 12


def made_up(*, candidates=5, devices=2, step_ns=30_000_000, behind_names="", ran=True):
    """Return an analysis whose candidates take turns on devices and copy to the next one.

    Each is a tenth of ``step_ns`` slower than the one before; what is behind names makes them long.
    """
    plain = sample()
    names = tuple(f"worker:{number}{behind_names}" for number in range(devices))
    schedules = [
        _taking_turns(
            f"split-{number}{behind_names}" if number else "single",
            names[:1] if number == 0 else names,
            names,
            round(step_ns * (1 + number / 10)),
            behind_names,
        )
        for number in range(candidates)
    ]
    cluster = Cluster(devices=tuple(Device(name=name, kind="CPU") for name in names), links=())
    return replace(
        plain,
        title=f"model{behind_names}",
        testbed=replace(plain.testbed, cluster=cluster),
        as_is=plain.as_is if ran else None,
        candidates=tuple(_made_up_candidate(schedule, schedules[0], ran) for schedule in schedules),
    )


def _taking_turns(label, used, names, step_ns, behind_names):
    turn_ns = step_ns // _TURNS
    busy_ns = turn_ns * 3 // 4
    ops = [(f"model/layer_{turn}/MatMul{behind_names}", turn * turn_ns) for turn in range(_TURNS)]
    runs, copies = [], []
    for device, target in zip(used, (*used[1:], used[0]), strict=True):
        runs += [(op, device, at, at + busy_ns) for op, at in ops]
        if target != device:
            copies += [(op, device, target, 1_000, at + busy_ns, at + turn_ns) for op, at in ops]
    found = schedule_of(label, runs, copies, dict.fromkeys(names, 0), unit_ns=1)
    return replace(found, step_ns=step_ns, peak_memory={})


def _made_up_candidate(schedule, single, ran):
    rounds, single_rounds = (
        tuple((each.step_ns + drift,) for drift in range(20)) for each in (schedule, single)
    )
    is_split = schedule is not single
    return Candidate(
        name=schedule.label,
        family=schedule.label,
        rationale="made up",
        predicted=schedule,
        measured=as_simulated(schedule, rounds) if ran else None,
        comparison=compare("single", single_rounds, rounds, among=1) if ran and is_split else None,
    )


def as_simulated(schedule, rounds, activities=()):
    """Return a run whose profiled step is the simulated one."""
    profile = step_profile(
        schedule.step_ns,
        compute_ns=schedule.compute_ns,
        exposed_by_device=schedule.exposed_by_device,
        activities=activities,
        timeline=simulated_spans(schedule),
    )
    return measurement(rounds, profile=profile)


US = 1_000
BOTH = frozenset({"CPU", "GPU"})


def _op(name, kind, *sizes, layer=None):
    kinds = frozenset({"CPU"}) if kind == "LookupTableFindV2" else BOTH
    return Op(name, kind, layer=layer, output_bytes=sizes, device_kinds=kinds)


def towers_graph():
    """Return a lookup whose two results feed a tower each, which meet in a product."""
    ops = [
        Op("ids", "Placeholder", Role.INPUT, output_bytes=(800,)),
        _op("lookup", "LookupTableFindV2", 1_600, 1_600, layer="lookup"),
        _op("user", "MatMul", 4_000, layer="user"),
        _op("item", "MatMul", None, layer="item"),
        _op("dot", "Mul", 400, layer="dot"),
        _op("count", "AssignAddVariableOp"),
    ]
    edges = [
        ("ids", "lookup", 0, 800),
        ("lookup", "user", 0, 1_600),
        ("lookup", "item", 1, 1_600),
        ("user", "dot", 0, 4_000),
        ("item", "dot", 0, None),
        ("dot", "count", CONTROL_PORT, None),
    ]
    return OpGraph(ops, [Edge(p, c, port, size) for p, c, port, size in edges])


PLACEMENT = Placement(
    label="towers",
    family="towers",
    device_of={
        **dict.fromkeys(("ids", "lookup", "user", "dot"), "GPU:0"),
        **dict.fromkeys(("item", "count"), "GPU:1"),
    },
    rationale="2 towers meet only at dot; one per device",
)


def _two_gpus():
    """Return two cards and a host that works on the copies it sends and receives."""
    names = ("GPU:0", "GPU:1", "CPU:0")
    return Cluster(
        devices=tuple(
            Device(name=name, kind="GPU", host="CPU:0", launch_overhead_ns=US) for name in names[:2]
        ),
        hosts=(Device(name="CPU:0", kind="CPU"),),
        links=tuple(
            replace(link, sender=CopyWork(per_copy_ns=4 * US if link.source == "CPU:0" else 0))
            for link in links_between(names, 20 * US, channel="switch")
        ),
        dispatch=Dispatch(step_overhead_ns=100 * US),
    )


def towers():
    """Return the schedule of the towers, one on each card."""
    cluster = _two_gpus()
    times_us = {"lookup": 30, "user": 200, "item": 180, "dot": 10, "count": 2}
    times_ns = {name: time_us * US for name, time_us in times_us.items()}
    costs = costs_of(times_ns, CostBasis.ROOFLINE)
    return Simulator(towers_graph(), costs.everywhere(cluster), cluster).schedule(PLACEMENT)


DEVICES = ("worker:0", "worker:1")
_KINDS = ("MatMul", "BiasAdd", "Relu")
_OP_NS = 40_000


def write_sample(logdir, layers, *, name="stack", doing=None, splits=1):
    """Write what the tab shows of a chain of layers of three ops: on one device, and cut often."""
    graph = _chain(layers)
    cluster = Cluster(
        devices=tuple(Device(name=name, kind="CPU") for name in DEVICES),
        links=links_between(DEVICES, 5_000),
    )
    costs = costs_of({op.name: _OP_NS for op in graph.ops}, CostBasis.GUESSED)
    simulator = Simulator(graph, costs.everywhere(cluster), cluster)
    candidates = tuple(
        _of_chain(placement, simulator.schedule(placement))
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
        how=replace(
            plain.how,
            candidate="alternating",
            words=f"layer {layers[0]} on worker:1",
            words_in_short=f"layer {layers[0]} on worker:1",
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


def _chain(layers):
    ops = [
        Op(f"{i}/{kind}", kind, layer=layer, flops=1_000, output_bytes=(4_096,))
        for i, layer in enumerate(layers)
        for kind in _KINDS
    ]
    ends = [(one.name, other.name) for one, other in pairwise(ops)]
    # A shortcut around every tenth layer, so that arrows do not all lead to the next.
    ends += [(f"{i}/Relu", f"{i + 2}/BiasAdd") for i in range(0, len(layers) - 2, 10)]
    return OpGraph(ops, [Edge(p, c, 0, 4_096) for p, c in ends])


def _placements(layers, splits):
    names = [[f"{i}/{kind}" for kind in _KINDS] for i in range(len(layers))]
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


def _of_chain(placement, schedule):
    activity, *_ = sample().candidates[0].profile.activities
    activity = replace(activity, name=f"MatMul of {placement.label}")
    return Candidate(
        name=placement.label,
        family=placement.family,
        rationale=placement.rationale,
        placement=placement,
        predicted=schedule,
        measured=as_simulated(schedule, ((schedule.step_ns,),), (activity,)),
    )
