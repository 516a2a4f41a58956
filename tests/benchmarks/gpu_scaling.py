"""Speed-ups over one GPU, as simulated, beside published ones.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_scaling.py RECORD

RECORD is a JSON file of published images per second. Every row of several GPUs is held against the
row of one such GPU with the same model and batch, as published and as simulated. Nothing is fitted
to it. What is known of how the programs ran is taken from their sources:

- Both: images are synthetic, that is, they stand on each GPU and are not copied there.
- `tensorflow-2017`: hosts before Skylake, for which NCCL takes 6 GB/s between sockets. Variables on
  the host were there for one GPU as well. NCCL 1 (read: 1.3.4, `core.cu`) laid one ring in the
  order of the devices. The program all-reduced each gradient as it was ready.
- `lambda-2020`: the same program, compiled by XLA, whose clusters hand their results over when they
  end: gradients, each still by itself, are exchanged after the backward pass.

Two figures for each row: with op times as predicted, and with those of all devices scaled such that
one GPU takes what was published for it. A third one, scaled as well, tells what the figure hangs
on: cards with a bridge are simulated without it, gradients of 2017 that were all-reduced as each
was ready are all-reduced after the backward pass, and variables on the host are read in any order
(the mean over some), while the simulation reads those first that are needed first.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Any

from simulated_splits import simulated

from placement_advisor.candidates.batch_split.data_parallel import (
    ONE_BY_ONE,
    DataParallel,
    DataParallelSteps,
)
from placement_advisor.candidates.batch_split.mirrored_graph import ALL_REDUCE
from placement_advisor.candidates.batch_split.split_graph import ON_HOST, SplitGraph
from placement_advisor.cost.collectives import ALL_DEVICES, ring_of_devices
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement, placed_ops
from placement_advisor.machine.presets import read_hardware
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.machine.devices import Cluster, Link

FIRST, SECOND = "tensorflow-2017", "lambda-2020"
# The record does not say what its model is.
UNDEFINED = "inception4"
# What NCCL takes between sockets of hosts before Skylake (`topo.h`, from version 2.7 on).
OLD_SOCKETS_BYTES_PER_S = 6e9
EIGHT = 8
# Orders in which variables on the host are read.
_ORDERS = range(5)
APART = 0.05
BRIDGE = " NVLink"
_TIME_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published efficiency on several GPUs, and the simulated ones."""

    source: str
    machine: str
    model: str
    batch: int
    gpus: int
    published: float
    predicted: float
    scaled: float
    otherwise: float


def main() -> None:
    """Print a row for each row of the record, then how far they are off."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("record", type=Path)
    asked = arguments.parse_args()
    print(
        "| source | machine | model | batch | GPUs | published | simulated | scaled | otherwise |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    for row in simulated_rows(asked.record):
        rows.append(row)
        columns = (row.published, row.predicted, row.scaled, row.otherwise)
        print(
            f"| {row.source} | {row.machine} | {row.model} | {row.batch} | {row.gpus} | "
            f"{' | '.join(f'{value:.3f}' for value in columns)} |",
            flush=True,
        )
    print_errors(rows)


def print_errors(rows: Sequence[Row]) -> None:
    """Print errors by source beside those of the best constant, and how pairs are ordered."""
    print("\n| rows | | median | 90th percentile |\n|---|---|---|---|")
    for source in (FIRST, SECOND):
        some = [row for row in rows if row.source == source]
        constant = min(
            (step / 1000 for step in range(500, 1001)), key=lambda c: median(_errors(some, c))
        )
        ways: dict[str, list[float]] = {
            f"constant {constant:.3f}": _errors(some, constant),
            "simulated": [_error(row.predicted, row) for row in some],
            "scaled to one GPU": [_error(row.scaled, row) for row in some],
            "the same, otherwise": [_error(row.otherwise, row) for row in some],
        }
        for name, errors in ways.items():
            tenth = quantiles(errors, n=10, method="inclusive")[-1]
            print(f"| {source}, {len(some)} | {name} | {median(errors):.1%} | {tenth:.1%} |")
    for name in ("predicted", "scaled"):
        right, pairs = _ordered([row for row in rows if row.gpus == EIGHT], name)
        print(f"| pairs at 8 GPUs, {name} | {right} of {pairs} right | {right / pairs:.0%} | |")


def simulated_rows(record: Path) -> Iterator[Row]:
    """Yield the published rows of several GPUs with what is simulated for them."""
    published = json.loads(record.read_text(encoding="utf-8"))["rows"]
    one = {_key(row): row["images_per_s"] for row in published if row["gpus"] == 1}
    of_model: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in published:
        if row["gpus"] > 1 and row["model"] != UNDEFINED and _key(row) in one:
            of_model[row["model"], row["batch_per_gpu"]].append(row)
    for (model, batch), some in of_model.items():
        traces = traced(model, batch)
        if isinstance(traces, str):
            print(f"left out: {len(some)} rows of {model} at {batch}: {traces}", flush=True)
            continue
        traces = replace(traces, whole=_with_synthetic_images(traces.whole))
        for row in some:
            yield simulated_row(row, one[_key(row)], traces)


def _with_synthetic_images(graph: OpGraph) -> OpGraph:
    """Return the graph with inputs that stand on every device."""
    ops = [op._replace(role=Role.CONSTANT) if op.role is Role.INPUT else op for op in graph.ops]
    return OpGraph(ops, graph.edges)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    card = row["gpu"].removesuffix(BRIDGE)
    return row["source"], card, row["model"], row["batch_per_gpu"], row["parameters_on"]


def traced(model: str, batch: int) -> SplitTraces | str:
    """Return the traces of a training step, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        path.write_text(
            "from published_models import trained\n"
            f"model, dataset = trained({model!r}, {batch}, is_fused=True)\n"
        )
        preload()
        with Child("loader") as child:
            answer: Any = child.call(
                tracer.load_workload,
                ModelSource(path=str(path), mode="train"),
                time_limit_s=_TIME_LIMIT_S,
            )
            if not isinstance(answer, CallFailure):
                answer = child.call(
                    tracer.trace_workload, str(path), None, time_limit_s=_TIME_LIMIT_S
                )
            if not isinstance(answer, CallFailure):
                shares = batch // 2, batch // 2
                answer = child.call(splitter.trace_split, shares, time_limit_s=_TIME_LIMIT_S)
    return answer.message if isinstance(answer, CallFailure | BatchSplitError) else answer


def simulated_row(row: dict[str, Any], alone: float, traces: SplitTraces) -> Row:
    """Return a row with its efficiencies; ``alone`` are the images per second of one GPU."""
    card, has_bridge = row["gpu"].removesuffix(BRIDGE).replace(" ", ""), BRIDGE in row["gpu"]
    card = {"V10032GB": "V100-32GB"}.get(card, card)
    # The machines of 2017 had eight GPUs; later ones had as many as were used.
    text = f"{EIGHT if row['source'] == FIRST else row['gpus']}x{card}"
    published_ns = row["batch_per_gpu"] / alone * NS_PER_S
    bridged = f"{text}-NVLink" if has_bridge else text
    scaled = _efficiency(row, bridged, traces, published_ns)
    is_on_host = row["parameters_on"] == "cpu"
    is_late = row["source"] == FIRST and not is_on_host
    orders = tuple(_ORDERS) if is_on_host else ()
    return Row(
        source=row["source"],
        machine=row["gpu"],
        model=row["model"],
        batch=row["batch_per_gpu"],
        gpus=row["gpus"],
        published=row["images_per_s"] / alone / row["gpus"],
        predicted=_efficiency(row, bridged, traces, None),
        scaled=scaled,
        otherwise=_efficiency(row, text, traces, published_ns, is_late=is_late, orders=orders)
        if has_bridge or is_late or orders
        else scaled,
    )


def _efficiency(
    row: dict[str, Any],
    machine: str,
    traces: SplitTraces,
    one_gpu_ns: float | None,
    *,
    is_late: bool = False,
    orders: Sequence[int] = (),
) -> float:
    """Return the simulated efficiency; op times are scaled to what one GPU takes, if given.

    Collectives of 2017 begin after the backward pass if they are late, those of XLA anyway. With
    ``orders`` variables are read in these, by number, and steps are means.
    """
    is_first, is_on_host = row["source"] == FIRST, row["parameters_on"] == "cpu"
    whole = read_hardware(machine)
    if is_first:
        whole = whole.with_device_links(_before_skylake)
    one, several = (whole.with_devices(whole.device_names()[:n]) for n in (1, row["gpus"]))
    family = ON_HOST if is_on_host else ONE_BY_ONE
    steps = DataParallelSteps(traces.weak(row["gpus"]))
    split = steps.propose(family, several.devices, ALL_DEVICES)
    assert isinstance(split, DataParallel)
    if is_late or not is_first:
        split = _after_backward(split)
    ring = ring_of_devices(several)
    if is_first:
        ring = replace(ring, bandwidth_bytes_per_s=ring_in_order(several))
    unsplit = _unsplit(traces.whole, one, is_on_host=is_on_host)
    factor, one_ns = 1.0, simulated(unsplit, one, ()).step_ns
    if one_gpu_ns is not None:
        factor = one_gpu_ns / one_ns
        one_ns = simulated(unsplit, one, (), op_factor=factor).step_ns
    if orders:
        one_ns, step_ns = (
            mean(simulated(_reading(step, n), *where, op_factor=factor).step_ns for n in orders)
            for step, where in ((unsplit, (one, ())), (split, (several, (ring,))))
        )
        return one_ns / step_ns
    step_ns = simulated(split, several, (ring,), op_factor=factor).step_ns
    return one_ns / step_ns


def _reading(step: DataParallel, order: int) -> DataParallel:
    """Return a step with variables read in an order of their own."""
    ops = step.split.graph.ops
    reads = [op for op in ops if op.role is Role.VARIABLE or op.kind == "ReadVariableOp"]
    others = [op for op in ops if op.role is not Role.VARIABLE and op.kind != "ReadVariableOp"]
    random.Random(order).shuffle(reads)
    graph = OpGraph([*reads, *others], step.split.graph.edges)
    return step._replace(split=replace(step.split, graph=graph))


def _before_skylake(link: Link) -> Link:
    if link.channel is None or not link.channel.startswith("sockets"):
        return link
    bandwidth = min(link.bandwidth_bytes_per_s, OLD_SOCKETS_BYTES_PER_S)
    return replace(link, bandwidth_bytes_per_s=bandwidth)


def ring_in_order(cluster: Cluster) -> float:
    """Return what one ring in the order of the devices carries."""
    names = cluster.device_names()
    hops = [cluster.link(*pair) for pair in zip(names, (*names[1:], names[0]), strict=True)]
    channels = [hop.channel or f"{hop.source} {hop.target}" for hop in hops]
    return min(
        hop.bandwidth_bytes_per_s / channels.count(channel)
        for hop, channel in zip(hops, channels, strict=True)
    )


def _unsplit(graph: OpGraph, cluster: Cluster, *, is_on_host: bool) -> DataParallel:
    """Return the step on one device, its variables and updates there or on the host."""
    device = cluster.devices[0]
    host = device.host if is_on_host else None
    device_of = {
        op.name: host if host and _is_of_variables(op) else device.name for op in placed_ops(graph)
    }
    placement = Placement(label="one", family="one", device_of=device_of, rationale="")
    return DataParallel(SplitGraph(graph=graph, replica_of={}, source={}), placement)


def _is_of_variables(op: Op) -> bool:
    return op.variable is not None or op.role in (Role.VARIABLE, Role.UPDATE)


def _after_backward(step: DataParallel) -> DataParallel:
    """Return the step with collectives that begin when all replicas have all their gradients."""
    split, placement = step
    graph = split.graph
    reduces = [op for op in graph.ops if op.kind == ALL_REDUCE]
    ready: defaultdict[int, set[str]] = defaultdict(set)
    for op in reduces:
        for edge in graph.inputs_of(op.name):
            ready[split.replica_of[edge.producer] or 0].add(edge.producer)
    ends = {replica: f"replica_{replica}/end of backward" for replica in ready}
    ops = [Op(name=end, kind="NoOp", role=Role.BACKWARD, bytes_accessed=0) for end in ends.values()]
    ops = [op._replace(device_kinds=frozenset({"GPU"})) for op in ops]
    edges = [*graph.edges]
    for replica, names in ready.items():
        edges += [Edge(name, ends[replica], CONTROL_PORT, 0) for name in sorted(names)]
        edges += [Edge(ends[replica], op.name, CONTROL_PORT, 0) for op in reduces]
    device_of = {**placement.device_of}
    for replica, end in ends.items():
        device_of[end] = placement.device_of[min(ready[replica])]
    return DataParallel(
        replace(split, graph=OpGraph([*graph.ops, *ops], edges)),
        replace(placement, device_of=device_of),
    )


def _error(efficiency: float, row: Row) -> float:
    return abs(efficiency / row.published - 1)


def _errors(rows: Iterable[Row], constant: float) -> list[float]:
    return [_error(constant, row) for row in rows]


def _ordered(rows: Iterable[Row], name: str) -> tuple[int, int]:
    """Return how many pairs that are apart are ordered right, and how many there are."""
    apart = [
        (one, other)
        for one, other in combinations(rows, 2)
        if abs(one.published - other.published) > APART
    ]
    right = sum(
        (one.published > other.published) == (getattr(one, name) > getattr(other, name))
        for one, other in apart
    )
    return right, len(apart)


if __name__ == "__main__":
    main()
