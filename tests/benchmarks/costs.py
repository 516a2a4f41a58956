"""Whether work formulas explain what ops really take, on each sample at its small size.

A sample runs on one worker and is profiled; before and after it, on the same core, a calibration
model, which gives one peak, one bandwidth and one least time of an op (the best of both runs). Two
figures come out:

- the share of the measured op time in kinds that have a formula of their own;
- per kind, predicted over measured time. Predicted is the longer of flops over the peak and bytes
  over the bandwidth, op by op, plus the least time for each run of an op. *Roofline* has the
  advisor's ceilings for kinds whose CPU kernels are not vectorised, *flat* has none.

Ops within loops count by their own kind. Convolutions that oneDNN fused with their bias are a kind
of its own, with the work of both.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from kind_fits import KindFit, fit_by_kind, leading
from machine_facts import machine_facts
from op_formulas import has_formula
from worker_profiles import profiled

from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.processes.children import preload

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_CALIBRATION = Path(__file__).with_name("calibration_model.py")
# The kinds that matter, and how far off a prediction may be.
_LEADING_SHARE = 0.9
_FACTOR = 2.0
_SHOWN_KINDS = 12
_FUSED_WITH_BIAS = "WithBias"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came out for one sample. ``unpriced_share`` is op time without a prediction."""

    device: Device
    op_time_ns: int
    formula_share: float
    without_formula: Mapping[str, float]
    unpriced_share: float
    roofline: tuple[KindFit, ...]
    flat: tuple[KindFit, ...]


def main():
    """Measure the samples named on the command line, all without a name."""
    names = sorted(path.stem for path in _SAMPLES.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=f"of {', '.join(names)}")
    parser.add_argument("--profiles", type=int, default=3, help="profiles per sample (3)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    preload()
    found = {}
    before = _calibrated(profiled(_CALIBRATION, options.profiles))
    for name in options.samples or names:
        sample = profiled(_SAMPLES / f"{name}.py", options.profiles)
        after = _calibrated(profiled(_CALIBRATION, options.profiles))
        found[name] = compared(sample, _best(before, after))
        _print(name, found[name])
        before = after
    _print_summary(found)
    if options.json:
        content = {"machine": machine_facts(), "samples": {n: asdict(f) for n, f in found.items()}}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


def _calibrated(calibration):
    """Return the worker with what the calibration model showed of it."""
    graph, executed = calibration.traced.graph, calibration.executed
    product, addition = graph.op("peak"), graph.op("bandwidth")
    least = [op.time_ns for name, op in executed.items() if name.startswith("least_")]
    return Device(
        name="worker:0",
        kind="CPU",
        peak_flops_per_s=(product.flops or 0) / executed["peak"].time_ns * 1e9,
        memory_bandwidth_bytes_per_s=(addition.bytes_accessed or 0)
        / executed["bandwidth"].time_ns
        * 1e9,
        launch_overhead_ns=round(median(least)),
    )


def _best(one, other):
    return replace(
        one,
        peak_flops_per_s=max(one.peak_flops_per_s or 0, other.peak_flops_per_s or 0),
        memory_bandwidth_bytes_per_s=max(
            one.memory_bandwidth_bytes_per_s or 0, other.memory_bandwidth_bytes_per_s or 0
        ),
        launch_overhead_ns=min(one.launch_overhead_ns, other.launch_overhead_ns),
    )


def compared(sample, device):
    """Compare what a sample's ops took with what their work says."""
    parts = _parts(sample)
    op_time_ns = sum(op.time_ns for op in sample.executed.values())
    without = defaultdict(int)
    for name, op in sample.executed.items():
        if not parts[name]:
            without["not in the graph"] += op.time_ns
        elif not all(has_formula(part.kind) for part in parts[name]):
            without[_label(parts[name])] += op.time_ns
    # Ceilings are for CPUs: a device of no kind has none.
    fits = [_fit(sample.executed, parts, of) for of in (device, replace(device, kind=""))]
    return Found(
        device=device,
        op_time_ns=op_time_ns,
        formula_share=1 - sum(without.values()) / op_time_ns,
        without_formula={kind: time_ns / op_time_ns for kind, time_ns in without.items()},
        unpriced_share=1 - sum(fit.measured_ns for fit in fits[0]) / op_time_ns,
        roofline=fits[0],
        flat=fits[1],
    )


def _parts(sample):
    """Return which ops of the model each executed op stands for."""
    own = {op.name: op for op in sample.traced.graph.ops}
    within = {op.name: op for op in sample.within}
    parts = {}
    for name in sample.executed:
        op = own.get(name) or within.get(name)
        parts[name] = [] if op is None else [op]
    for op, into in _fused(sample.traced.graph, sample.executed):
        parts[into].insert(0, op)
    return parts


def _fused(graph, executed):
    """Yield ops that ran as part of another one, and the name of that one.

    oneDNN's pass gives a convolution to the bias that reads it, and the gradient of a bias to the
    convolution's that reads the same tensor.
    """
    for op in graph.ops:
        if op.name in executed or not (op.kind.startswith("Conv") or op.kind == "BiasAddGrad"):
            continue
        near = [edge.consumer for edge in graph.outputs_of(op.name)]
        if op.kind == "BiasAddGrad":
            source = next(edge for edge in graph.inputs_of(op.name) if not edge.is_control)
            near = [edge.consumer for edge in graph.outputs_of(source.producer)]
        for other in near:
            if other in executed and executed[other].kind.endswith(_FUSED_WITH_BIAS):
                yield op, other
                break


def _label(parts):
    return " + ".join(part.kind for part in parts)


def _fit(executed, parts, device):
    """Return the fit of each kind; the least time is in the predictions, once per run."""
    ops = {}
    measured, predicted = {}, {}
    for name, op in executed.items():
        if not parts[name] or parts[name][0].role is Role.INPUT:
            continue  # An input is the benchmark's doing, not the model's.
        alone = OpGraph([part._replace(role=Role.FORWARD) for part in parts[name]], ())
        costs = roofline_by_place(alone, Cluster(devices=(device,), links=()))[device.name]
        once_ns = sum(cost.time_ns for cost in costs.costs.values())
        ops[name] = Op(name=name, kind=_label(parts[name]))
        measured[name] = OpCost(time_ns=op.time_ns, basis=CostBasis.MEASURED)
        predicted[name] = OpCost(
            time_ns=op.runs * (once_ns + device.launch_overhead_ns), basis=CostBasis.ROOFLINE
        )
    return fit_by_kind(
        OpGraph(ops.values(), ()), CostTable(costs=predicted), CostTable(costs=measured), 0
    )


def _print(name, found):
    device = found.device
    print(
        f"\n{name}: {found.op_time_ns / 1e6:.2f} ms of ops, {found.formula_share:.1%} in kinds "
        f"with a formula; no prediction for {found.unpriced_share:.1%}\n"
        f"calibrated: {(device.peak_flops_per_s or 0) / 1e9:.0f} Gflop/s, "
        f"{(device.memory_bandwidth_bytes_per_s or 0) / 1e9:.1f} GB/s, "
        f"{device.launch_overhead_ns / 1e3:.2f} µs per op"
    )
    if found.without_formula:
        kinds = sorted(found.without_formula.items(), key=lambda item: -item[1])
        print("without: " + ", ".join(f"{kind} {share:.2%}" for kind, share in kinds))
    flat = {fit.kind: fit for fit in found.flat}
    important = {fit.kind for fit in leading(found.roofline, _LEADING_SHARE)}
    print(f"  {'kind':<38}{'ops':>6}{'measured µs':>13}{'share':>7}{'roofline':>10}{'flat':>7}")
    for fit in found.roofline[: max(_SHOWN_KINDS, len(important))]:
        mark = "" if fit.kind not in important else " ok" if fit.is_within(_FACTOR) else " OFF"
        print(
            f"  {fit.kind:<38}{fit.ops:>6}{fit.measured_ns / 1e3:>13.1f}{fit.share:>7.1%}"
            f"{fit.ratio or 0:>9.2f}×{flat[fit.kind].ratio or 0:>6.2f}×{mark}",
            flush=True,
        )


def _print_summary(found):
    print(f"\n{'sample':<22}{'formula':>9}{'within 2×':>11}{'time in these':>15}{'flat':>10}  off")
    for name, of in found.items():
        important = leading(of.roofline, _LEADING_SHARE)
        flat = leading(of.flat, _LEADING_SHARE)
        good = [fit for fit in important if fit.is_within(_FACTOR)]
        off = [f"{fit.kind} {fit.ratio or 0:.2f}×" for fit in important if fit not in good]
        flat_good = sum(fit.is_within(_FACTOR) for fit in flat)
        share = sum(fit.share for fit in good) / sum(fit.share for fit in important)
        print(
            f"{name:<22}{of.formula_share:>9.1%}{f'{len(good)} of {len(important)}':>11}"
            f"{share:>15.0%}{f'{flat_good} of {len(flat)}':>10}  {', '.join(off)}"
        )


if __name__ == "__main__":
    main()
