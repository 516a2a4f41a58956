"""Analyses for the tab that need no run: as many layers as wanted, with any names."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sample_analysis import OPTIONS
from sample_break_even import FOUND

from placement_advisor.analysis.analysis_result import (
    AdviceVerdict,
    Analysis,
    Candidate,
    Finding,
    HowToSplit,
    ModelSummary,
    Recommendation,
    Saving,
)
from placement_advisor.analysis.analysis_result import TestbedSummary as Testbed
from placement_advisor.analysis.recorder import SoFar
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.files.contract import like
from placement_advisor.graph.op_graph import Edge, Op, OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Basis, Cluster, Device, Link
from placement_advisor.measurement.measurement import Activity, Measurement, StepProfile
from placement_advisor.report.pictures.bars import simulated_spans
from placement_advisor.report.tensorboard.tab import Tab
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from placement_advisor.simulator.schedule import Schedule

DEVICES = ("worker:0", "worker:1")
_OPS = ("MatMul", "BiasAdd", "Relu")
_OP_NS = 40_000


def write_sample(
    logdir: Path,
    layers: Sequence[str],
    *,
    name: str = "stack",
    doing: str | None = None,
    splits: int = 1,
) -> None:
    """Write what the tab shows of a chain of layers of three ops: on one device, and cut often."""
    graph = _graph(layers)
    cluster = _cluster()
    costs = CostTable(
        costs={op.name: OpCost(time_ns=_OP_NS, basis=CostBasis.GUESSED) for op in graph.ops}
    )
    simulator = Simulator(graph, costs.everywhere(cluster), cluster)
    candidates = tuple(
        _candidate(placement, simulator.schedule(placement))
        for placement in _placements(layers, splits)
    )
    analysis = Analysis(
        advisor_version="0",
        tensorflow_version="0",
        options=OPTIONS,
        model=ModelSummary(
            path=f"{name}.py",
            name=name,
            mode="infer",
            batch_size=32,
            ops=len(graph),
            edges=len(graph.edges),
            parameter_bytes=1_000_000,
            edge_bytes_known_share=1.0,
            chosen=name,
            fingerprint="0",
        ),
        testbed=Testbed(
            kind="workers",
            stand_in=True,
            description="2 CPU stand-ins",
            cluster=cluster,
            fingerprint="0",
            not_run=None,
        ),
        as_is=None,
        candidates=candidates,
        recommendation=_recommendation(name),
        findings=(_finding(layers[0]),),
        warnings=(f"{name} is made up",),
        timings_ns={},
        how=_how(layers[0]),
        break_even=FOUND,
    )
    Tab(logdir, graph).show(like(SoFar, analysis, doing=doing) if doing else analysis)


def _graph(layers: Sequence[str]) -> OpGraph:
    ops = [
        Op(name=f"{i}/{kind}", kind=kind, layer=layer, flops=1_000, output_bytes=(4_096,))
        for i, layer in enumerate(layers)
        for kind in _OPS
    ]
    ends = [(one.name, other.name) for one, other in pairwise(ops)]
    # A shortcut around every tenth layer, so that arrows do not all lead to the next.
    ends += [(f"{i}/Relu", f"{i + 2}/BiasAdd") for i in range(0, len(layers) - 2, 10)]
    return OpGraph(ops, [Edge(producer=p, consumer=c, port=0, size_bytes=4_096) for p, c in ends])


def _cluster() -> Cluster:
    return Cluster(
        devices=tuple(Device(name=name, kind="CPU") for name in DEVICES),
        links=tuple(
            Link(
                source=source,
                target=target,
                latency_ns=5_000,
                bandwidth_bytes_per_s=1e9,
                basis=Basis.ASSUMED,
            )
            for source, target in (DEVICES, DEVICES[::-1])
        ),
    )


def _placements(layers: Sequence[str], splits: int) -> list[Placement]:
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


def _candidate(placement: Placement, schedule: Schedule) -> Candidate:
    return Candidate(
        name=placement.label,
        family=placement.family,
        rationale=placement.rationale,
        placement=placement,
        predicted=schedule,
        measured=Measurement(
            warmup_ns=(),
            rounds=((schedule.step_ns,),),
            moved_ops=(),
            verification=None,
            profile=StepProfile(
                step_ns=(schedule.step_ns,),
                compute_ns=schedule.compute_ns,
                exposed_by_device=schedule.exposed_by_device,
                transfers=(),
                activities=(
                    Activity(
                        name=f"MatMul of {placement.label}",
                        calls=3,
                        total_ns=9_000,
                        min_ns=2_000,
                        max_ns=4_000,
                        is_copy=False,
                    ),
                ),
                op_ns={},
                timeline=simulated_spans(schedule),
            ),
            profile_run=None,
        ),
        comparison=None,
        failure=None,
    )


def _recommendation(name: str) -> Recommendation:
    return Recommendation(
        verdict=AdviceVerdict.STAY_SINGLE,
        candidate="alternating",
        speedup=None,
        basis="measured",
        applies_to="2 CPU stand-ins",
        answer=f"stay single: {name}",
        headline=f"stay single: {name}",
        caveat=None,
        deciding=(),
        reasons=(f"{name} is a chain",),
        others=(),
    )


def _how(layer: str) -> HowToSplit:
    return HowToSplit(
        candidate="alternating",
        words=f"layer {layer} on worker:1",
        words_in_short=f"layer {layer} on worker:1",
        call='step = place(step, "placements/alternating.json")\n',
        listing=f"# {layer}\nDEVICE = {{}}\n",
    )


def _finding(layer: str) -> Finding:
    return Finding(
        code="PA201",
        name="step-waits-for-transfers",
        finding=f"{layer} waits",
        action=f"join {layer}",
        where={"layer": layer},
        saving=Saving(step_ns=5_000_000, saving_ns=1_000_000, low_ns=900_000, high_ns=1_200_000),
    )
