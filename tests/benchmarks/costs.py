"""Whether work formulas explain what ops really take, on each sample at its small size.

A sample runs on one worker and is profiled; before and after it, on the same core, a calibration
model, which gives one peak, one bandwidth and one least time of an op (the best of both runs). Two
figures come out:

- the share of the measured op time in kinds that have a formula of their own;
- per kind, predicted over measured time. Predicted is the longer of flops over the peak and bytes
  over the bandwidth, op by op, plus the least time for each run of an op. Kinds
  whose CPU kernels are not vectorised have the advisor's ceilings.

The run is the one by which `advisor analyze` measures costs. Ops within loops count by their own
kind, with the time of all their runs in a step. Convolutions that oneDNN fused with their bias are
a kind of its own, with the work of both.
"""

from collections import Counter, defaultdict, namedtuple
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import typer
from model_tracing import Names, models_of, on_workers
from op_formulas import has_formula
from tables import table_head, table_row

from placement_advisor.candidates.references import on_device
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import preload
from placement_advisor.profile.steps import OP_EVENT, host_lines
from placement_advisor.profile.xplane import space_file
from placement_advisor.testbed.benchmark import PROFILED_STEPS, Benchmark, SilentProgress

traced_costs = RemoteModule("traced_costs")

_CALIBRATION = Path(__file__).with_name("calibration_model.py")
# The kinds that matter, and how far off a prediction may be.
_LEADING_SHARE = 0.9
_FACTOR = 2.0
_SHOWN_KINDS = 12

# An op as it ran: its kind may be another than in the graph. Times and runs are of a step.
Executed = namedtuple("Executed", "kind runs time_ns")

# Times of all ops of one kind: measured, predicted over measured, and their part of all of it.
KindFit = namedtuple("KindFit", "kind ops measured_ns ratio share")


def main(samples: Names = None, profiles: int = 3):
    preload()
    found = {}
    before = _calibrated(profiled(_CALIBRATION, profiles))
    for path in models_of(samples):
        sample = profiled(path, profiles)
        after = _calibrated(profiled(_CALIBRATION, profiles))
        found[path.stem] = compared(sample, _best(before, after))
        _print(path.stem, found[path.stem])
        before = after
    _print_summary(found)


def profiled(path, profiles):
    """Run a model on one worker; return its graph, the ops within loops, and what ran, by name.

    It is profiled so many times. Each op has the shortest of the medians of the profiles, since
    other work on the machine only ever adds.
    """
    with on_workers(path, None, 1, traced_costs.trace_with_loops) as ((traced, within), testbed):
        trial = Benchmark(testbed, steps=1, watcher=SilentProgress())
        entry = trial.enter(on_device(traced.graph, testbed.plan.devices[0].name))
        shortest = {}
        for _ in range(profiles):
            trial.settle(entry)
            if entry.failure is None:
                trial.profile(entry)
            if entry.failure is not None or entry.profile is None:
                raise SystemExit(f"nothing was profiled: {entry.failure}")
            for op, time_ns in entry.profile.op_ns.items():
                shortest[op] = min(time_ns, shortest.get(op, time_ns))
        matches = [
            OP_EVENT.fullmatch(event.name)
            for file in entry.files.devices.values()
            for line in host_lines(space_file(file))
            for event in line.events
        ]
    kinds = dict(match.groups() for match in matches if match)
    runs = Counter(match.group(1) for match in matches if match)
    executed = {
        op: Executed(kinds[op], max(1, round(runs[op] / PROFILED_STEPS)), time_ns)
        for op, time_ns in shortest.items()
        if op in kinds
    }
    return traced.graph, within, executed


def _calibrated(calibration):
    """Return the worker with what the calibration model showed of it."""
    graph, _, executed = calibration
    product, addition = graph.op("peak"), graph.op("bandwidth")
    accessed_bytes, took_ns = addition.bytes_accessed, executed["bandwidth"].time_ns
    least = [op.time_ns for name, op in executed.items() if name.startswith("least_")]
    return Device(
        name="worker:0",
        kind="CPU",
        peak_flops_per_s=product.flops / executed["peak"].time_ns * 1e9,
        memory_bandwidth_bytes_per_s=accessed_bytes / took_ns * 1e9,
        launch_overhead_ns=round(median(least)),
    )


def _best(one, other):
    peaks = ("peak_flops_per_s", "memory_bandwidth_bytes_per_s")
    best = {name: max(getattr(each, name) for each in (one, other)) for name in peaks}
    least_ns = min(one.launch_overhead_ns, other.launch_overhead_ns)
    return replace(one, launch_overhead_ns=least_ns, **best)


def compared(sample, device):
    """Compare what a sample's ops took with what their work says.

    ``unpriced_share`` is op time without a prediction.
    """
    *_, executed = sample
    parts = _parts(*sample)
    op_time_ns = sum(op.time_ns for op in executed.values())
    without = defaultdict(int)
    for name, op in executed.items():
        if not parts[name]:
            without["not in the graph"] += op.time_ns
        elif not all(has_formula(part.kind) for part in parts[name]):
            without[" + ".join(part.kind for part in parts[name])] += op.time_ns
    fits = _fit(executed, parts, device)
    return SimpleNamespace(
        device=device,
        op_time_ns=op_time_ns,
        formula_share=1 - sum(without.values()) / op_time_ns,
        without_formula={kind: time_ns / op_time_ns for kind, time_ns in without.items()},
        unpriced_share=1 - sum(fit.measured_ns for fit in fits) / op_time_ns,
        fits=fits,
    )


def _parts(graph, within, executed):
    """Return which ops of the model each executed op stands for.

    oneDNN's pass gives a convolution to the bias that reads it, and the gradient of a bias to the
    convolution's that reads the same tensor.
    """
    known = {op.name: op for op in (*within, *graph.ops)}
    parts = {name: [known[name]] if name in known else [] for name in executed}
    for op in graph.ops:
        if op.name in executed or not (op.kind.startswith("Conv") or op.kind == "BiasAddGrad"):
            continue
        near = graph.outputs_of(op.name)
        if op.kind == "BiasAddGrad":
            source = next(edge for edge in graph.inputs_of(op.name) if not edge.is_control)
            near = graph.outputs_of(source.producer)
        fused = (edge.consumer for edge in near if edge.consumer in executed)
        for into in (name for name in fused if executed[name].kind.endswith("WithBias")):
            parts[into].insert(0, op)
            break
    return parts


def _fit(executed, parts, device):
    """Return the fit of each kind, the longest first; the least time is predicted for each run."""
    times = defaultdict(list)
    for name, op in executed.items():
        if not parts[name] or parts[name][0].role is Role.INPUT:
            continue  # An input is the benchmark's doing, not the model's.
        alone = OpGraph([part._replace(role=Role.FORWARD) for part in parts[name]], ())
        costs = roofline_by_place(alone, Cluster(devices=(device,), links=()))[device.name]
        once_ns = sum(cost.time_ns for cost in costs.costs.values()) + device.launch_overhead_ns
        kind = " + ".join(part.kind for part in parts[name])
        times[kind].append((op.time_ns, op.runs * once_ns))
    whole = sum(time_ns for each in times.values() for time_ns, _ in each) or 1
    fits = []
    for kind, each in times.items():
        ns, predicted_ns = map(sum, zip(*each, strict=True))
        fits.append(KindFit(kind, len(each), ns, predicted_ns / ns if ns else 0.0, ns / whole))
    return sorted(fits, key=lambda fit: (-fit.measured_ns, fit.kind))


def is_good(fit):
    """Return whether the prediction is neither `_FACTOR` times too long nor too short."""
    return 1 / _FACTOR <= fit.ratio <= _FACTOR


def leading(fits):
    """Return the first kinds that together make up the share that matters."""
    before = accumulate((fit.share for fit in fits), initial=0.0)
    return [fit for fit, covered in zip(fits, before, strict=False) if covered < _LEADING_SHARE]


def _print(name, found):
    device = found.device
    print(
        f"\n{name}: {found.op_time_ns / 1e6:.2f} ms of ops, {found.formula_share:.1%} in kinds "
        f"with a formula; no prediction for {found.unpriced_share:.1%}\n"
        f"calibrated: {device.peak_flops_per_s / 1e9:.0f} Gflop/s, "
        f"{device.memory_bandwidth_bytes_per_s / 1e9:.1f} GB/s, "
        f"{device.launch_overhead_ns / 1e3:.2f} µs per op"
    )
    if found.without_formula:
        kinds = sorted(found.without_formula.items(), key=lambda item: -item[1])
        print("without: " + ", ".join(f"{kind} {share:.2%}" for kind, share in kinds))
    important = {fit.kind for fit in leading(found.fits)}
    print(f"\n{table_head('kind | ops | measured µs | share | roofline | within 2×')}")
    for fit in found.fits[: max(_SHOWN_KINDS, len(important))]:
        mark = "" if fit.kind not in important else "ok" if is_good(fit) else "OFF"
        told = f"{fit.measured_ns / 1e3:.1f}", f"{fit.share:.1%}", f"{fit.ratio:.2f}×"
        print(table_row(fit.kind, fit.ops, *told, mark), flush=True)


def _print_summary(found):
    print(f"\n{table_head('sample | formula | within 2× | time in these | off')}")
    for name, of in found.items():
        important = leading(of.fits)
        good = [fit for fit in important if is_good(fit)]
        off = ", ".join(f"{fit.kind} {fit.ratio:.2f}×" for fit in important if fit not in good)
        share = sum(fit.share for fit in good) / sum(fit.share for fit in important)
        told = f"{of.formula_share:.1%}", f"{len(good)} of {len(important)}", f"{share:.0%}"
        print(table_row(name, *told, off))


if __name__ == "__main__":
    typer.run(main)
