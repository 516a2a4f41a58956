"""Evidence for tests of rules: graphs by hand on two linked devices, or traced ones."""

from dataclasses import fields, replace

from placed_steps import pair
from sample_values import costs_of, measurement

from placement_advisor.analysis.analysis_result import Candidate
from placement_advisor.analysis.findings.evidence import Evidence
from placement_advisor.analysis.findings.rules import combine_findings
from placement_advisor.analysis.runs import RunResults
from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY, StepCosts
from placement_advisor.candidates import references
from placement_advisor.cost.table import CostBasis, CostSource, CostTable
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.simulator.step_growth import TIMES, GrowingStep, StepGrowth
from placement_advisor.tf.answers import Traced

ALL_KINDS = frozenset({"CPU", "GPU"})


def two_devices(*, memory_bytes=None, **more):
    """Return devices a and b; a byte takes a nanosecond between them."""
    plain = pair(**more)
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in plain.devices)
    return replace(plain, devices=devices)


def op(name, size_bytes=0, role=Role.FORWARD, **more):
    """Return an op that is a layer of its own and runs anywhere, unless ``more`` says otherwise."""
    fields = {"kind": "MatMul", "layer": name, "device_kinds": ALL_KINDS} | more
    return Op(name, role=role, output_bytes=(size_bytes,), **fields)


def graph_of(ops, *ends):
    """Return the graph with these edges, each a tensor of port 0."""
    ops = list(ops)
    size = {op.name: op.output_bytes[0] for op in ops}
    return OpGraph(ops, [Edge(source, target, 0, size[source]) for source, target in ends])


def measured_as(step_ns, *, moved_ops=()):
    return measurement(((step_ns,),), moved_ops=moved_ops)


def evidence_of(
    graph, costs, *splits, cluster=None, measured=None, source=CostSource.MEASURED, **more
):
    """Return the evidence of `single`, which may be given, and these splits, simulated.

    ``costs`` are ns by op, or tables by device; a split may be given as its devices alone.
    ``measured`` goes by candidate; ``more`` is of the trace, of what ran, or of the evidence.
    """
    about, ran = (
        {field.name: more.pop(field.name) for field in fields(of) if field.name in more}
        for of in (Traced, RunResults)
    )
    cluster = cluster or two_devices()
    tables = {name: cost for name, cost in costs.items() if isinstance(cost, CostTable)}
    if not tables:
        times = {name: cost for name, cost in costs.items() if isinstance(cost, int)}
        tables = _measured_costs(times).everywhere(cluster)
    simulator = Simulator(graph, tables, cluster)
    alone = references.on_device(graph, cluster.devices[0].name)
    given = {each.label: each for each in map(_as_placement, splits)}
    placements = list(({alone.label: alone} | given).values())
    for placement in placements:
        placement.check(graph, cluster.place_names())
    candidates = [
        Candidate(
            name=placement.label,
            family=placement.family,
            rationale="",
            placement=placement,
            predicted=simulator.schedule(placement),
            measured=(measured or {}).get(placement.label),
        )
        for placement in placements
    ]
    about = {"batch_size": None, **about}
    names = {"name": "net", "mode": "train", "chosen": "", "tensorflow_version": ""}
    return Evidence(
        traced=Traced(graph=graph, members={}, **names, **about),
        prices=StepCosts(cluster=cluster, costs=tables, source=source, doubt=MEASURED_UNCERTAINTY),
        simulator=simulator,
        candidates=tuple(candidates),
        results=RunResults(**ran),
        **more,
    )


def with_runs(evidence, **shown):
    """Return the evidence with something else that runs have shown."""
    return replace(evidence, results=replace(evidence.results, **shown))


def growing_of(at, batch, costs_ns, cluster=None):
    """Return a step with costs at its batch and others; ``at`` makes it for so many samples."""
    cluster = cluster or two_devices()
    growth = StepGrowth(at(batch), batch, {times: at(batch * times) for times in TIMES})
    return GrowingStep(growth, _measured_costs(costs_ns).everywhere(cluster), cluster)


def _measured_costs(costs_ns):
    return costs_of(costs_ns, CostBasis.MEASURED)


def told(find, evidence):
    """Return the findings of one rule, those about a split as they go together."""
    return tuple(each for group in combine_findings(evidence, [*find(evidence)]) for each in group)


def on(graph, label, device_of, family="test"):
    """Return a placement with the ops that it does not name on the first device."""
    everywhere = dict.fromkeys((op.name for op in graph.ops), "a")
    return Placement(label=label, family=family, device_of=everywhere | device_of, rationale="")


def _as_placement(split):
    if isinstance(split, Placement):
        return split
    return Placement(label="halves", family="test", device_of=split, rationale="")
