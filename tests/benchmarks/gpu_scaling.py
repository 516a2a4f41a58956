"""Speed-ups over one GPU, as simulated, beside published ones.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_scaling.py [--png FILE] RECORD
    ... gpu_scaling.py --one-gpu [--keras] RECORD

RECORD is a JSON file of published images per second. Every row of several GPUs is held against the
row of one such GPU with the same model and batch, as published and as simulated. What is known of
how the programs ran is taken from their sources:

- Both: images are synthetic, that is, they stand on each GPU and are not copied there.
- `tensorflow-2017`: hosts before Skylake, for which NCCL takes 6 GB/s between sockets. Variables on
  the host were there for one GPU as well. NCCL 1 (read: 1.3.4, `core.cu`) laid one ring in the
  order of the devices. The program all-reduced each gradient as it was ready.
- `lambda-2020`: the same program, compiled by XLA, which fuses elementwise ops and whose clusters
  hand their results over when they end: gradients, each still by itself, are exchanged after the
  backward pass. NCCL 2.4 to 2.8 (read: `enqueue.cc`) had one thread launch a collective on all GPUs
  of a process, one after the other.

Three constants are fitted (least mean error of the logarithm over a grid, every row the same
weight); a range is as wide as most rows need. These, *left out*, *step known* and *bare* (without
bridges) are explained in docs/explanation/scaling.md.

With ``--one-gpu`` steps of one GPU instead, of `tensorflow-2017`, once by a roofline alone and once
with the times of kernels. They judge: no constant was fitted to them. Where variables stood on the
host, they are copied to the GPU, their gradients back, and the host updates them. Batches are
normalised by fused ops, as the published models did it; with ``--keras`` as Keras 3 does.
"""

import json
import math
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import combinations, compress, product
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace
from typing import NamedTuple

import typer
from model_tracing import called
from simulated_splits import simulator_of
from tables import spread, table_head, table_row

from placement_advisor.analysis.scaled_steps import slowest_of
from placement_advisor.analysis.target_costs import speedup_within
from placement_advisor.candidates.batch_split import data_parallel, mirrored_graph, split_graph
from placement_advisor.cost.collectives import ALL_DEVICES, ring_of_devices
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.graph.slow_patterns import with_fusions
from placement_advisor.machine.devices import Sharing
from placement_advisor.machine.presets import hardware_figures, read_hardware
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import NS_PER_S

FIRST, SECOND = "tensorflow-2017", "lambda-2020"
# The record does not say what its model is.
UNDEFINED = "inception4"
# What NCCL takes between sockets of hosts before Skylake (`topo.h`, from version 2.7 on).
OLD_SOCKETS_BYTES_PER_S = 6e9
EIGHT = 8
APART = 0.05
# From how much more speed on a further card pays.
_PAYS = 1.03
# Of the rows that a range is fitted to; of a machine that is left out, fewer are inside.
_INSIDE = 0.96
BRIDGE = " NVLink"
_BESIDE_SHARE = 0.05


class Constants(NamedTuple):
    """What is fitted: `[exchange]`, `[alike]`, and what a launch takes on each GPU."""

    loss: float
    spread_of_clock_range: float
    launch_ns: int


LAUNCHES_NS = range(0, 50_001, 10_000)
# What all rows are fitted best by.
LAUNCH_NS = 30_000
_GRID = [
    Constants(loss / 50, spread / 200, launch_ns)
    for loss, spread, launch_ns in product(range(51), range(31), LAUNCHES_NS)
]


class Step(NamedTuple):
    """A simulated step that loses nothing, with the spread as shipped.

    ``beside_ns`` is lost if the loss is 1, ``slower_ns`` if that spread is greater by 1.
    """

    step_ns: int
    beside_ns: int
    slower_ns: float = 0.0

    def lasting_ns(self, constants):
        more = constants.spread_of_clock_range - _spread()
        return self.step_ns + constants.loss * self.beside_ns + more * self.slower_ns


def _spread():
    return hardware_figures()["alike"]["spread_of_clock_range"]


class Parts(NamedTuple):
    """The simulated steps of one and of several equal GPUs, these by what a launch takes."""

    one: Step
    several: dict[int, Step]

    def efficiency(self, constants):
        several = self.several[constants.launch_ns if len(self.several) > 1 else 0]
        return self.one.lasting_ns(constants) / several.lasting_ns(constants)


def main(record: Path, png: Path | None = None, one_gpu: bool = False, keras: bool = False):
    published = json.loads(record.read_text(encoding="utf-8"))["rows"]
    if one_gpu:
        print_one_gpu(published, is_fused=not keras)
        return
    rows = list(simulated_rows(published))
    before = Constants(0.0, 0.0, 0)
    shipped = Constants(hardware_figures()["exchange"]["loss"], _spread(), LAUNCH_NS)
    # What the rows of all other cards are fitted best by.
    others = {
        card: fitted([row for row in rows if row.card != card])
        for card in dict.fromkeys(row.card for row in rows)
    }
    print(f"all rows are fitted best by {fitted(rows)}")
    for card, constants in others.items():
        print(f"without {card}: {constants}")
    for name, title in {
        "parts": "as wired",
        "bare": "bridges left out",
        "known": "bridges left out, step known",
    }.items():
        ways = {
            "nothing lost": _efficiencies(rows, name, before),
            "shipped": _efficiencies(rows, name, shipped),
            "left out": [getattr(row, name).efficiency(others[row.card]) for row in rows],
        }
        print(f"\n{title}: {len(rows)} rows")
        print(f"range of all rows: {within(rows, name, shipped):.2f}")
        withins = {
            card: within([row for row in rows if row.card != card], name, constants)
            for card, constants in others.items()
        }
        print(", ".join(f"without {card} {share:.2f}" for card, share in withins.items()))
        print_errors(rows, ways)
        print_decisions(rows, ways)
        print_ranges(rows, ways["left out"], [withins[row.card] for row in rows])
        if name == "parts":
            _print_rows(rows, ways)
            print_misses(rows, shipped)
            if png:
                draw(png, rows, ways)


def print_one_gpu(published, *, is_fused):
    """Print steps of one GPU, predicted over published, then how far they are off."""
    steps, errors = defaultdict(list), []
    for row in published:
        if row["source"] == FIRST and row["gpus"] == 1:
            steps[row["model"], row["batch_per_gpu"]].append(row)
    print(table_head("GPU | model | batch | published ms | roofline | kernels | assumed kernels"))
    for (model, batch), rows in steps.items():
        graph = traced(f"trained({model!r}, {batch}, is_fused={is_fused})", batch).whole
        for row in rows:
            there = read_hardware(row["gpu"])
            gpu, host = there.devices[0].name, there.hosts[0].name
            of_variables = host if row["parameters_on"] == "cpu" else gpu
            device_of = {
                op.name: gpu if op.variable is None else of_variables for op in graph.placed_ops
            }
            placement = Placement(label="one", family="one", device_of=device_of, rationale="")
            published_ns = batch / row["images_per_s"] * NS_PER_S
            unknown = tuple(replace(device, gpu=None) for device in there.devices)
            ratios = [
                Simulator(graph, roofline_by_place(graph, at), at).step_ns(placement) / published_ns
                for at in (replace(there, devices=unknown), there)
            ]
            errors.append([abs(ratio - 1) for ratio in ratios])
            table = roofline_by_place(graph, there)[gpu]
            assumed = (x for x in table.costs.values() if x.basis is CostBasis.KERNEL_ASSUMED)
            assumed_ns = sum(cost.time_ns for cost in assumed)
            told = f"{ratios[0]:.2f}", f"{ratios[1]:.2f}", f"{assumed_ns / table.total_ns:.0%}"
            print(table_row(row["gpu"], model, batch, f"{published_ns / 1e6:.0f}", *told))
    for word, of in (("median", median), ("mean", fmean), ("worst", max)):
        found = [f"{of(each):.0%}" for each in zip(*errors, strict=True)]
        print(table_row(f"{word} error", "", "", "", *found, ""))


def simulated_rows(published):
    """Yield the published rows of several GPUs with what is simulated for them."""
    one = {_key(row): row["images_per_s"] for row in published if row["gpus"] == 1}
    of_model = defaultdict(list)
    for row in published:
        if row["gpus"] > 1 and row["model"] != UNDEFINED and _key(row) in one:
            of_model[row["model"], row["batch_per_gpu"]].append(row)
    for (model, batch), some in of_model.items():
        traces = traced(f"trained({model!r}, {batch}, is_fused=True)", batch)
        ops, edges = traces.whole.ops, traces.whole.edges
        # Inputs stand on every device.
        ops = [op._replace(role=Role.CONSTANT) if op.role is Role.INPUT else op for op in ops]
        for row in some:
            yield simulated_row(row, one[_key(row)], replace(traces, whole=OpGraph(ops, edges)))


def _key(row):
    card = row["gpu"].removesuffix(BRIDGE)
    return row["source"], card, row["model"], row["batch_per_gpu"], row["parameters_on"]


@cache
def traced(call, batch):
    """Return the traces of a training step of `published_models`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        path.write_text(
            f"from published_models import trained, trained_bert\nmodel, dataset = {call}\n"
        )
        preload()
        with Child("loader") as child:
            called(child, tracer.load_workload, ModelSource(path=str(path), mode="train"))
            called(child, tracer.trace_workload, str(path), None)
            answer = called(child, splitter.trace_split, (batch // 2, batch // 2))
    assert not isinstance(answer, BatchSplitError), answer.message
    return answer


def simulated_row(row, alone, traces):
    """Return a row with its simulated parts; ``alone`` are the images per second of one GPU.

    Published is the efficiency. ``bare`` is without a bridge, ``known`` without one and with the
    published step of one GPU.
    """
    card, has_bridge = row["gpu"].removesuffix(BRIDGE), BRIDGE in row["gpu"]
    # The machines of 2017 had eight GPUs; later ones had as many as were used.
    count = EIGHT if row["source"] == FIRST else row["gpus"]
    text = f"{count}x{'V100-32GB' if card == 'V100 32GB' else card.replace(' ', '')}"
    bare = _parts(row, text, traces)
    parts = _parts(row, f"{text}-NVLink", traces) if has_bridge else bare
    beside_ns = parts.several[0].beside_ns - parts.one.beside_ns
    simulated = {
        "card": card,
        "published": row["images_per_s"] / alone / row["gpus"],
        "parts": parts,
        "bare": bare,
        "known": _parts(row, text, traces, row["batch_per_gpu"] / alone * NS_PER_S),
        # How long exchanges last beside kernels, over the step of one GPU.
        "beside": beside_ns / parts.one.step_ns,
        "variables": sum(bool(op.parameter_bytes) for op in traces.whole.ops),
    }
    return SimpleNamespace(**row | simulated)


def _parts(row, machine, traces, known_ns=None):
    """Simulate a row; ``known_ns`` is what one GPU takes where that is known."""
    is_first, is_on_host = row["source"] == FIRST, row["parameters_on"] == "cpu"
    whole = read_hardware(machine)
    if is_first:
        whole = whole.with_device_links(_before_skylake)
    one, several = (whole.with_devices(whole.device_names()[:n]) for n in (1, row["gpus"]))
    family = split_graph.ON_HOST if is_on_host else data_parallel.ONE_BY_ONE
    steps = data_parallel.DataParallelSteps(traces.weak(row["gpus"]))
    split = steps.propose(family, several.devices, ALL_DEVICES)
    assert isinstance(split, data_parallel.DataParallel)
    unsplit, ring = traces.whole, ring_of_devices(several)
    if is_first:
        ring = replace(ring, bandwidth_bytes_per_s=ring_in_order(several))
    else:
        unsplit = with_fusions(unsplit)
        fused = replace(split.split, graph=with_fusions(split.split.graph))
        split = _after_backward(split._replace(split=fused))
    alone = _unsplit(unsplit, one, is_on_host=is_on_host)
    of_one, of_all = simulator_of(alone, one, ()), simulator_of(split, several, (ring,))
    if known_ns is not None:
        factor = known_ns / _step(of_one, alone.placement).step_ns
        of_one = of_one.scaled_at(one.devices[0].name, factor)
        for name in several.device_names():
            of_all = of_all.scaled_at(name, factor)
    last, launches_ns = several.devices[-1].name, (0,) if is_first else LAUNCHES_NS
    of_launch = {each: _launching(of_all, each * row["gpus"]) for each in launches_ns}
    several_steps = {each: _step(of, split.placement, last) for each, of in of_launch.items()}
    return Parts(_step(of_one, alone.placement), several_steps)


def _launching(simulator, launch_ns):
    """Return the same with a thread that launches all collectives, one after the other."""
    if not launch_ns:
        return simulator
    *hosts, place = simulator.cluster.hosts
    place = replace(place, launches_ahead=True, launch_overhead_ns=launch_ns)
    return simulator.on(replace(simulator.cluster, hosts=(*hosts, place)))


def _step(simulator, placement, slowest=None):
    lossless, lossy = (
        simulator.on(replace(simulator.cluster, sharing=Sharing(exchange_loss=loss)))
        for loss in (0.0, 1.0)
    )
    device = simulator.devices_of(placement)
    step_ns = lossless.outlined_step_ns(device)
    beside_ns = lossy.outlined_step_ns(device) - step_ns
    if slowest is None:
        return Step(step_ns, beside_ns)
    devices = simulator.cluster.devices
    factor = slowest_of(len(devices), devices[-1])
    even_ns = lossless.scaled_at(slowest, 1 / factor).outlined_step_ns(device)
    return Step(step_ns, beside_ns, (step_ns - even_ns) / _spread())


def _efficiencies(rows, name, constants):
    return [getattr(row, name).efficiency(constants) for row in rows]


def fitted(rows):
    """Return what rows are fitted best by, as they are wired."""

    def error(constants):
        return fmean(abs(math.log(row.parts.efficiency(constants) / row.published)) for row in rows)

    return min(_GRID, key=error)


def within(rows, name, constants):
    """Return how far off the lost share may be, for most rows to lie within their range."""
    efficiencies = _efficiencies(rows, name, constants)
    # Of a range of one, by how much of it rows are off.
    shares = sorted(
        abs(math.log(row.published / efficiency)) / math.log(speedup_within(efficiency, 1.0))
        for row, efficiency in zip(rows, efficiencies, strict=True)
    )
    return shares[math.ceil(_INSIDE * len(shares)) - 1]


def print_errors(rows, ways):
    print(f"\n{table_head('rows | of | median | 90th percentile')}")
    for source in (FIRST, SECOND):
        some = [row for row in rows if row.source == source]
        constant = min(
            (step / 1000 for step in range(500, 1001)),
            key=lambda c: median(abs(c / row.published - 1) for row in some),
        )
        constants = {f"constant {constant:.3f}": [constant] * len(rows)}
        for name, efficiencies in (constants | ways).items():
            errors = [
                abs(efficiency / row.published - 1)
                for row, efficiency in zip(rows, efficiencies, strict=True)
                if row.source == source
            ]
            print(table_row(f"{source}, {len(some)}", name, *spread(errors)))


def print_decisions(rows, ways):
    names = "which of two scales better at 8 GPUs | does a doubling pay | best of two machines"
    print(f"\n{table_head(f'by | {names}')}")
    for name, efficiencies in ways.items():
        known = list(zip(rows, efficiencies, strict=True))
        counts = [_ordered(known), _doublings(known), _machines(known)]
        print(table_row(name, *(f"{sum(of)} of {len(of)}" for of in counts)))


def _ordered(known):
    return [
        (one.published > other.published) == (mine > theirs)
        for (one, mine), (other, theirs) in combinations(known, 2)
        if one.gpus == other.gpus == EIGHT and abs(one.published - other.published) > APART
    ]


def _doublings(known):
    """Return of each doubling whether it is told right that it brings more than 3 %, or not."""
    found = {
        (row.source, row.gpu, row.model, row.batch_per_gpu, row.gpus): (row, of)
        for row, of in known
    }
    right = []
    for key, (row, efficiency) in found.items():
        half = found.get((*key[:-1], row.gpus // 2))
        before, predicted = (half[0].published, half[1]) if half else (1.0, 1.0)
        if half or row.gpus == 2:
            pays = 2 * row.published / before > _PAYS
            right.append(pays == (2 * efficiency / predicted > _PAYS))
    return right


def _machines(known):
    """Return of each two machines whether the faster one is told, where that is by over 3 %."""
    right = []
    for (one, mine), (other, theirs) in combinations(known, 2):
        is_pair = (one.source, one.model, one.gpus) == (other.source, other.model, other.gpus)
        ratio = one.images_per_s / other.images_per_s
        if is_pair and one.card != other.card and not 1 / _PAYS < ratio < _PAYS:
            ours, others = (
                efficiency * row.batch_per_gpu / row.parts.one.step_ns
                for row, efficiency in ((one, mine), (other, theirs))
            )
            right.append((ratio > 1) == (ours > others))
    return right


def print_ranges(rows, efficiencies, withins):
    """Print how many published speed-ups lie within predicted ranges, and how wide these are."""
    inside_of, widths = defaultdict(list), []
    for row, efficiency, share in zip(rows, efficiencies, withins, strict=True):
        factor = speedup_within(efficiency, share)
        widths.append(factor - 1 / factor)
        for name in ("all", row.source, row.card, f"{row.gpus} GPUs"):
            inside_of[name].append(1 / factor <= row.published / efficiency <= factor)
    print(f"\n{table_head('rows | inside of the range, left out')}")
    for name, some in inside_of.items():
        print(table_row(name, f"{sum(some)} of {len(some)}, {fmean(some):.0%}"))
    print(f"median width: {median(widths):.1%}")


def _print_rows(rows, ways):
    names = "source | machine | model | batch | GPUs | published"
    print(f"\n{table_head(' | '.join([names, *ways]))}")
    for row, *efficiencies in zip(rows, *ways.values(), strict=True):
        values = (f"{value:.3f}" for value in (row.published, *efficiencies))
        print(table_row(row.source, row.gpu, row.model, row.batch_per_gpu, row.gpus, *values))


def print_misses(rows, shipped):
    """Print the largest misses, each with what would make it right.

    These are: no bridge, the published step of one GPU, another loss beside kernels, or so much
    more for each variable's exchange.
    """
    names = "row | published | shipped | bare | step known | right with a loss of | or with, each"
    print(f"\n{table_head(names)}")

    def error(row):
        return abs(math.log(row.parts.efficiency(shipped) / row.published))

    for row in sorted(rows, key=error, reverse=True)[:24]:
        kinds = row.parts, row.bare, row.known
        found, bare, known = (parts.efficiency(shipped) for parts in kinds)
        one_ns, beside_ns = row.parts.one.step_ns, row.parts.several[0].beside_ns
        lost_ns = one_ns * (1 / row.published - 1 / found)
        # Where next to nothing runs beside an exchange, no loss makes it right.
        is_beside = beside_ns > _BESIDE_SHARE * one_ns
        loss = shipped.loss + lost_ns / beside_ns if is_beside else math.nan
        each_us = lost_ns / row.variables / 1e3
        name = f"{row.gpu}, {row.model}, {row.gpus}"
        values = (f"{value:.3f}" for value in (row.published, found, bare, known))
        print(table_row(name, *values, f"{loss:.2f}", f"{each_us:.0f} µs"))


def draw(path, rows, ways):
    """Draw errors before and after over the exchange beside kernels, by machine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    before, _, after = ways
    for panel, name in zip(panels, (before, after), strict=True):
        for card in dict.fromkeys(row.card for row in rows):
            some = [row.card == card for row in rows]
            off = [100 * (of / row.published - 1) for of, row in zip(ways[name], rows, strict=True)]
            besides = [row.beside for row in rows]
            panel.scatter(list(compress(besides, some)), list(compress(off, some)), 14, label=card)
        panel.axhline(0, color="grey", linewidth=0.8)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("exchange beside kernels, over the step of one GPU")
    panels[0].set_ylabel("predicted over published, %")
    panels[1].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _before_skylake(link):
    if link.channel is None or not link.channel.startswith("sockets"):
        return link
    bandwidth = min(link.bandwidth_bytes_per_s, OLD_SOCKETS_BYTES_PER_S)
    return replace(link, bandwidth_bytes_per_s=bandwidth)


def ring_in_order(cluster):
    """Return what one ring in the order of the devices carries."""
    names = cluster.device_names()
    hops = [cluster.link(*pair) for pair in zip(names, (*names[1:], names[0]), strict=True)]
    channels = [hop.channel or f"{hop.source} {hop.target}" for hop in hops]
    return min(
        hop.bandwidth_bytes_per_s / channels.count(channel)
        for hop, channel in zip(hops, channels, strict=True)
    )


def _unsplit(graph, cluster, *, is_on_host):
    """Return the step on one device, its variables and updates there or on the host."""
    device = cluster.devices[0]
    of_variables = (is_on_host and device.host) or device.name
    device_of = {
        op.name: of_variables
        if op.variable is not None or op.role in (Role.VARIABLE, Role.UPDATE)
        else device.name
        for op in graph.placed_ops
    }
    placement = Placement(label="one", family="one", device_of=device_of, rationale="")
    whole = split_graph.SplitGraph(graph=graph, replica_of={}, source={})
    return data_parallel.DataParallel(whole, placement)


def _after_backward(step):
    """Return the step with collectives that begin when all replicas have all their gradients."""
    split, placement = step
    graph = split.graph
    reduces = [op for op in graph.ops if op.kind == mirrored_graph.ALL_REDUCE]
    ready = defaultdict(set)
    for op in reduces:
        for edge in graph.inputs_of(op.name):
            ready[split.replica_of[edge.producer] or 0].add(edge.producer)
    ops, edges, device_of = [*graph.ops], [*graph.edges], {**placement.device_of}
    for replica, names in ready.items():
        end = f"replica_{replica}/end of backward"
        op = Op(name=end, kind="NoOp", role=Role.BACKWARD, bytes_accessed=0)
        ops.append(op._replace(device_kinds=frozenset({"GPU"})))
        edges += [Edge(name, end, CONTROL_PORT, 0) for name in sorted(names)]
        edges += [Edge(end, op.name, CONTROL_PORT, 0) for op in reduces]
        device_of[end] = placement.device_of[min(names)]
    whole = replace(split, graph=OpGraph(ops, edges))
    return data_parallel.DataParallel(whole, replace(placement, device_of=device_of))


if __name__ == "__main__":
    typer.run(main)
