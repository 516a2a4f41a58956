"""Steps, weak scaling and mixed precision as simulated, beside what NVIDIA's own examples reached.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/nvidia_scaling.py RECORD

RECORD is a table of rows of their pages (model, section, row). ResNet-50
v1.5 and BERT of base size, for BioBERT (128 words) and ELECTRA's fine-tuning (384), are simulated
with the published batch, on up to 8 GPUs, in float32, or TF32 where the GPU has it, and float16.
Gradients are all-reduced in one pack after the backward pass: XLA hands them over when its cluster
ends. Elementwise ops are fused where XLA was on: in all rows but those of ELECTRA in float32 or
TF32, whose `run_squad.sh` turns it on with float16 alone. Gradients wait for Horovod's next
cycle, and those of BERT are exchanged in float16 in steps that compute so.

What starts a run of BioBERT is one constant, fitted to its two machines that are not predicted
(docs/decisions/0071). Errors are given with these rows and without.

ELECTRA's pre-training adds up gradients over 48 steps and more before it exchanges them. So all
that its GPUs lose is taken to be the wait for the slowest: these rows judge the spread.

Left out are models without a batch in the record (EfficientNet), with grouped or 3-D convolutions,
which have no times of kernels (SE-ResNeXt, VNet), and those that share a batch (strong scaling:
NCF, Wide & Deep, UNet).
"""

import csv
import math
import re
from collections import Counter, namedtuple
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median

import typer
from gpu_scaling import traced
from simulated_splits import simulated
from tables import spread, table_head, table_row

from placement_advisor.analysis.scaled_steps import slowest_of
from placement_advisor.candidates.batch_split.data_parallel import DataParallel, DataParallelSteps
from placement_advisor.candidates.batch_split.mirrored_graph import ALL_REDUCE
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.cost.collectives import ALL_DEVICES, ring_of_devices
from placement_advisor.cost.gpu.kernel_times import with_policy
from placement_advisor.graph.op import PASS_ROLES, Arithmetic
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.slow_patterns import with_fusions
from placement_advisor.machine.presets import read_hardware

# What to call for a batch, by the end of the model's name and the beginning of the section.
_MODELS = {
    ("resnet50v1.5", "Training"): lambda batch: f"trained('resnet50v1.5', {batch}, is_fused=True)",
    ("biobert", "Fine-tuning"): lambda batch: f"trained_bert({batch}, 128)",
    ("ELECTRA", "Fine-tuning"): lambda batch: f"trained_bert({batch}, 384)",
}
_WITHOUT_XLA = "ELECTRA", False
# Keras' policy computes all of the model in float16; the others have Grappler's rewrite.
_WITH_POLICY = "ELECTRA"
_NOT_STEADY = "biobert"
_ACCUMULATED = "Accumulation steps"
# What starts a run of BioBERT, in milliseconds for each step that one GPU makes.
_STARTS_MS = [half / 2 for half in range(61)]
# Horovod looks for gradients each 5 ms before its version 0.21 of November 2020 (its changelog).
_CYCLE_NS = 5e6
_MACHINES = {
    "A100": "8xA100",
    "V100 16G": "8xV100-NVLink",
    "DGX-1 16G": "8xV100-NVLink",
    "DGX-1": "8xV100-32GB-NVLink",
    "DGX-2": "8xV100-32GB-NVLink",
}

# What Grappler's rewrite for mixed precision computes in float16. Products and convolutions are
# allowed; what only runs well in float32 is denied, and so is what follows it. Ops between allowed
# ones are inferred; clear ones, which compute nothing, do as their neighbours do. An op on no list
# stays in float32. Source: TensorFlow 1.15, `auto_mixed_precision.cc` and the lists of
# `auto_mixed_precision_lists.h`, of which those are named here that a step of these models has.
_ALLOWED = "BatchMatMulV2 Conv2D Conv2DBackpropFilter Conv2DBackpropInput Einsum MatMul"
_DENIED = "Exp L2Loss Log Mean Pow Softmax SparseSoftmaxCrossEntropyWithLogits Sum"
_INFERRED = """
AddN AddV2 BiasAdd BiasAddGrad Erf Erfc FusedBatchNormGradV3 FusedBatchNormV3 Mul Prod RealDiv Sqrt
Sub Tanh TanhGrad
"""
_CLEAR = """
BroadcastTo ConcatV2 ExpandDims Fill GatherV2 Identity Max MaxPool MaxPoolGrad Maximum Neg Pack Pad
Relu ReluGrad Reshape SelectV2 Slice Split Squeeze StridedSlice StridedSliceGrad Tile Transpose
Unpack ZerosLike
"""

# Samples per second of a model on so many GPUs of a machine, as published and simulated. Where
# gradients are accumulated, one GPU is taken to do one sample a second.
Rate = namedtuple("Rate", "key is_accumulated is_half gpus samples published_per_s simulated_per_s")


def main(record: Path):
    rates = with_starts(simulated_rates(record))
    of = {(rate.key, rate.is_half, rate.gpus): rate for rate in rates}
    steps, scaling, mixed = [], [], []
    for (key, is_half, gpus), rate in of.items():
        name = (*key, "float16" if is_half else "float32 or TF32", f"{gpus} GPUs")
        one = of[key, is_half, 1]
        if gpus > 1:
            scaling.append((name, *(ratio / gpus for ratio in _over(rate, one))))
        if gpus > 1 or rate.is_accumulated:
            continue
        rates_per_s = rate.published_per_s, rate.simulated_per_s
        steps.append((name, *(1e3 * rate.samples / per_s for per_s in rates_per_s)))
        if is_half:
            mixed.append(((*key, "float16 over float32 or TF32"), *_over(rate, of[key, False, 1])))
    titles = "Step of one GPU, ms", "Weak scaling, efficiency", "Mixed precision"
    for title, ratios in zip(titles, (steps, scaling, mixed), strict=True):
        print(f"\n{table_head(f'{title} | published | simulated')}")
        for name, published, found in ratios:
            print(table_row(", ".join(name), f"{published:.3f}", f"{found:.3f}"))
        accumulated = {rate.key for rate in rates if rate.is_accumulated}
        exchanging = [row for row in ratios if row[0][:2] not in accumulated]
        for of_all in {len(ratios): ratios, len(exchanging): exchanging}.values():
            for kept in (of_all, [row for row in of_all if row[0][0] != _NOT_STEADY]):
                _, published_, found_ = zip(*kept, strict=True)
                print(f"{len(kept)} rows")
                _print_errors(published_, found_, is_ratio=ratios is not steps)
    print(f"\n{table_head('BioBERT | lost of a step for each further GPU')}")
    for (key, is_half, gpus), rate in of.items():
        if key[0] == _NOT_STEADY and gpus > 1:
            steps_s = [x.samples * x.gpus / x.published_per_s for x in (of[key, is_half, 1], rate)]
            lost_ms = 1e3 * (steps_s[1] - steps_s[0]) / (gpus - 1)
            name = f"{key[1]}, {'float16' if is_half else 'float32'}, {gpus}"
            print(table_row(name, f"{lost_ms:.1f} ms"))


def with_starts(rates):
    """Return the rates with what starts a run of BioBERT, as fitted to its other machines."""
    found = list(rates)
    for key in dict.fromkeys(rate.key for rate in rates if rate.key[0] == _NOT_STEADY):
        others = [rate for rate in rates if rate.key[0] == _NOT_STEADY and rate.key != key]
        start_ms = min(_STARTS_MS, key=lambda ms: _error([_started(r, ms) for r in others]))
        print(f"start of {' '.join(key)}: {start_ms} ms for each step of one GPU")
        found = [_started(rate, start_ms) if rate.key == key else rate for rate in found]
    return found


def _started(rate, start_ms):
    samples = rate.samples * rate.gpus
    step_s = samples / rate.simulated_per_s + start_ms / 1e3 * rate.gpus
    return rate._replace(simulated_per_s=samples / step_s)


def _error(rates):
    """Return the mean error of the logarithm of efficiencies."""
    one = {(rate.key, rate.is_half): rate for rate in rates if rate.gpus == 1}
    ratios = [_over(rate, one[rate.key, rate.is_half]) for rate in rates if rate.gpus > 1]
    return fmean(abs(math.log(found / published)) for published, found in ratios)


def _over(rate, one):
    return rate.published_per_s / one.published_per_s, rate.simulated_per_s / one.simulated_per_s


def _print_errors(published, found, *, is_ratio):
    """Print errors; those of ratios beside the best constant's, and whether *pays* was told right.

    A step has no constant to compare with.
    """

    def errors(values):
        return [abs(value / known - 1) for value, known in zip(values, published, strict=True)]

    steps = [step / 1000 for step in range(300, 5000)]
    constant = min(steps, key=lambda c: median(errors([c] * len(published))))
    for name, values in (
        *[(f"constant {constant}", [constant] * len(published))] * is_ratio,
        ("simulated", found),
    ):
        print("{}: median {}, 90th percentile {}".format(name, *spread(errors(values))))
    if is_ratio:
        pays = [(value > 1) == (known > 1) for value, known in zip(found, published, strict=True)]
        print(f"more than once as much: {sum(pays)} of {len(pays)} right")


def simulated_rates(record):
    """Return the rates that are published for what can be built, in the order of the record."""
    found, skipped = [], Counter()
    lines = record.read_text(encoding="utf-8").splitlines()
    for line in csv.DictReader((x for x in lines if not x.startswith("#")), delimiter="\t"):
        name, section = line["model"].rpartition("/")[2], line["section"]
        build = _MODELS.get((name, section.partition(" ")[0]))
        figures = dict(cell.split("=", 1) for cell in line["row"].split("; ") if "=" in cell)
        gpus = int(figures["GPUs"])
        is_accumulated = any(key.startswith(_ACCUMULATED) for key in figures) and build is None
        if (build is None and not is_accumulated) or gpus > 8:
            skipped[f"{line['model']}{'' if build is None else ', more GPUs'}"] += 1
            continue
        machine = next(text for word, text in _MACHINES.items() if word in section)
        batch = next(value for key, value in figures.items() if key.lower().startswith("batch"))
        batches = [int(number) for number in re.findall(r"\b[0-9]+\b", batch)]
        for heading, value in figures.items():
            if not heading.startswith("Throughput - "):
                continue
            is_half = "mixed" in heading
            samples = batches[-1] if is_half else batches[0]
            if build is None:
                section = f"{line['section']}, {figures['Sequence length']} words"
                per_s = gpus / slowest_of(gpus, read_hardware(machine).devices[0])
            else:
                per_s = _per_s(name, build(samples), samples, machine, gpus, is_half=is_half)
            published_per_s = float(re.findall(r"[0-9.]+", value.replace(",", ""))[0])
            key = name, section
            found.append(Rate(key, is_accumulated, is_half, gpus, samples, published_per_s, per_s))
    for model, rows in skipped.items():
        print(f"left out: {rows} rows of {model}")
    return found


@cache
def _per_s(name, call, samples, machine, gpus, *, is_half):
    whole = read_hardware(machine)
    cluster = whole.with_devices(whole.device_names()[:gpus])
    traces = traced(call, samples)
    proposed = DataParallelSteps(traces.weak(gpus)).propose(MIRRORED, cluster.devices, ALL_DEVICES)
    assert isinstance(proposed, DataParallel)
    graph = proposed.split.graph
    graph = with_halves(graph) if is_half and name != _WITH_POLICY else graph
    graph = with_fusions(graph) if (name, is_half) != _WITHOUT_XLA else graph
    graph = with_policy(graph, Arithmetic.FLOAT16) if is_half and name == _WITH_POLICY else graph
    if is_half and call.startswith("trained_bert"):
        reduced = {op.name for op in graph.ops if op.kind == ALL_REDUCE}
        graph = _written_in_halves(graph, reduced)
    proposed = proposed._replace(split=replace(proposed.split, graph=graph))
    step_ns = simulated(proposed, cluster, (ring_of_devices(cluster),)).step_ns
    step_ns += round(_CYCLE_NS / 2) * (gpus > 1)
    return samples * gpus / step_ns * 1e9


def _written_in_halves(graph, names):
    """Return the graph with half as many bytes of what these ops write."""
    ops = [
        op._replace(output_bytes=tuple(size and size // 2 for size in op.output_bytes))
        if op.name in names
        else op
        for op in graph.ops
    ]
    edges = [
        edge._replace(size_bytes=edge.size_bytes and edge.size_bytes // 2)
        if edge.producer in names
        else edge
        for edge in graph.edges
    ]
    return OpGraph(ops, edges)


def with_halves(graph):
    """Return the step with float16 where Grappler puts it.

    A tensor that halves alone read is cast where it is written: XLA fuses the cast.
    """
    allowed, denied, inferred, clear = (
        {op.name for op in graph.ops if op.kind in kinds.split() and op.role in PASS_ROLES}
        for kinds in (_ALLOWED, _DENIED, _INFERRED, _CLEAR)
    )
    denied = _reached(graph, denied, inferred | clear, is_forward=True)
    open_ = (allowed | inferred | clear) - denied
    behind, before = (_reached(graph, allowed, open_, is_forward=way) for way in (True, False))
    halves = allowed | (inferred & behind & before)
    for way in (True, False):
        halves |= _reached(graph, halves, clear - denied, is_forward=way)
    written = halves | {op.name for op in graph.ops if _is_read_in(halves, graph, op)}
    graph = _written_in_halves(graph, written)
    return OpGraph([_in_halves(op) if op.name in halves else op for op in graph.ops], graph.edges)


def _reached(graph, start, through, *, is_forward):
    """Return the start and what is reached from it through these ops alone."""
    reached, open_ = set(start), list(start)
    while open_:
        name = open_.pop()
        edges = graph.outputs_of(name) if is_forward else graph.inputs_of(name)
        for edge in edges:
            other = edge.consumer if is_forward else edge.producer
            if not edge.is_control and other in through and other not in reached:
                reached.add(other)
                open_.append(other)
    return reached


def _is_read_in(halves, graph, op):
    edges = graph.outputs_of(op.name)
    return op.role in PASS_ROLES and bool(edges) and all(edge.consumer in halves for edge in edges)


def _in_halves(op):
    kernel = op.kernel and op.kernel._replace(arithmetic=Arithmetic.FLOAT16)
    return op._replace(kernel=kernel, bytes_accessed=op.bytes_accessed and op.bytes_accessed // 2)


if __name__ == "__main__":
    typer.run(main)
