"""Whether work formulas explain what ops really take, on each sample at its small size.

A sample runs on one worker of the `workers` testbed and is profiled, as `advisor analyze` does to
measure costs; beside it, on the same core, a calibration model, which gives one peak, one bandwidth
and one least time of an op. Two figures come out:

- the share of the measured op time in kinds that have a formula of their own;
- per kind, predicted over measured time. Predicted is the longer of flops over the peak and bytes
  over the bandwidth, op by op, plus the least time for each run of an op. *Roofline* has the
  advisor's ceilings for kinds whose CPU kernels are not vectorised, *flat* has none.

Ops within loops count by their own kind. Each op has the shortest of the medians of several
profiles, since other work on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from machine_facts import machine_facts

from placement_advisor.candidates.single import propose
from placement_advisor.children import Child, ChildFailure, preload
from placement_advisor.cost.fit import KindFit, fit_by_kind, leading
from placement_advisor.cost.roofline import roofline_costs
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.devices import Device
from placement_advisor.graph import Op, OpGraph, Role
from placement_advisor.testbed import Testbed, TestbedKind, plan_testbed
from placement_advisor.trial import Trial
from placement_advisor.work.registry import has_formula

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loop_ops import LoopOp

    from placement_advisor.tf.answers import Traced

_SAMPLES = Path(__file__).parents[2] / "sample_models"
_CALIBRATION = Path(__file__).with_name("calibration_model.py")
_TIME_LIMIT_S = 300.0
# The kinds that matter, and how far off a prediction may be.
_LEADING_SHARE = 0.9
_FACTOR = 2.0
_SHOWN_KINDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A model on one device: its ops, those within loops too, and the time of each per step."""

    traced: Traced
    within: Sequence[LoopOp]
    op_ns: Mapping[str, int]


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


def main() -> None:
    """Measure the samples named on the command line, all without a name."""
    names = sorted(path.stem for path in _SAMPLES.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=f"of {', '.join(names)}")
    parser.add_argument("--profiles", type=int, default=3, help="profiles per sample (3)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    preload()
    found = {}
    for name in options.samples or names:
        device = _calibrated(_profiled(_CALIBRATION, options.profiles))
        found[name] = _compared(_profiled(_SAMPLES / f"{name}.py", options.profiles), device)
        _print(name, found[name])
    _print_summary(found)
    if options.json:
        content = {"machine": machine_facts(), "samples": {n: asdict(f) for n, f in found.items()}}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


def _profiled(path: Path, profiles: int) -> Profiled:
    """Run a model on one worker and profile it, so many times."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        with Child("loader", scratch / "loader.log") as loader:
            load = ("placement_advisor.tf.tracer:load_workload", str(path), None, None, None)
            _answer(path, loader.call(*load, time_limit_s=_TIME_LIMIT_S))
            bundle = scratch / "bundle"
            bundle.mkdir()
            trace = ("loop_ops:trace", str(path), str(bundle))
            traced, within = _answer(path, loader.call(*trace, time_limit_s=_TIME_LIMIT_S))
        plan = plan_testbed(TestbedKind.WORKERS, 1)
        testbed = Testbed(plan, bundle=bundle, graph=traced.graph, scratch=scratch)
        try:
            testbed.start()
            op_ns = _op_ns(testbed, traced.graph, profiles)
        finally:
            testbed.close()
    return Profiled(traced=traced, within=within, op_ns=op_ns)


def _op_ns(testbed: Testbed, graph: OpGraph, profiles: int) -> dict[str, int]:
    trial = Trial(testbed, steps=1, watcher=_Silent())
    entry = trial.enter(propose(graph, CostTable(costs={}), [testbed.plan.devices[0].name]))
    shortest: dict[str, int] = {}
    for _ in range(profiles):
        trial.settle(entry)
        if entry.failure is None:
            trial.profile(entry)
        if entry.failure is not None or entry.profile is None:
            raise SystemExit(f"nothing was profiled: {entry.failure}")
        for op, time_ns in entry.profile.op_ns.items():
            shortest[op] = min(time_ns, shortest.get(op, time_ns))
    return shortest


def _calibrated(profiled: Profiled) -> Device:
    """Return the worker with what the calibration model showed of it."""
    graph, op_ns = profiled.traced.graph, profiled.op_ns
    product, addition = graph.op("peak"), graph.op("bandwidth")
    least = [time_ns for op, time_ns in op_ns.items() if op.startswith("least_")]
    assert product.flops is not None
    assert addition.bytes_accessed is not None
    return Device(
        name="worker:0",
        kind="CPU",
        peak_flops_per_s=product.flops / op_ns["peak"] * 1e9,
        memory_bandwidth_bytes_per_s=addition.bytes_accessed / op_ns["bandwidth"] * 1e9,
        launch_overhead_ns=round(median(least)),
    )


def _compared(profiled: Profiled, device: Device) -> Found:
    graph = _with_loops_open(profiled)
    measured = {op: ns for op, ns in profiled.op_ns.items() if op in graph}
    op_time_ns = sum(profiled.op_ns.values())
    without: dict[str, int] = {"not in the graph": op_time_ns - sum(measured.values())}
    for op, time_ns in measured.items():
        kind = graph.op(op).kind
        if not has_formula(kind):
            without[kind] = without.get(kind, 0) + time_ns
    measured_costs = CostTable(
        costs={op: OpCost(time_ns=ns, basis=CostBasis.MEASURED) for op, ns in measured.items()}
    )
    # Ceilings are for CPUs: a device of no kind has none.
    fits = []
    for of in (device, replace(device, kind="")):
        predicted = _predicted(graph, profiled.within, of)
        fits.append(fit_by_kind(graph, predicted, measured_costs, device.launch_overhead_ns))
    priced_ns = sum(fit.measured_ns for fit in fits[0])
    return Found(
        device=device,
        op_time_ns=op_time_ns,
        formula_share=1 - sum(without.values()) / op_time_ns,
        without_formula={kind: ns / op_time_ns for kind, ns in without.items() if ns},
        unpriced_share=1 - priced_ns / op_time_ns,
        roofline=fits[0],
        flat=fits[1],
    )


def _with_loops_open(profiled: Profiled) -> OpGraph:
    """Return the ops of the graph and those within its loops; no figure needs their edges."""
    ops = {op.name: op for op in profiled.traced.graph.ops}
    for op in profiled.within:
        ops.setdefault(op.name, Op(name=op.name, kind=op.kind))
    return OpGraph(ops.values(), ())


def _predicted(graph: OpGraph, within: Sequence[LoopOp], device: Device) -> CostTable:
    """Return roofline costs; an op within a loop has those of all its runs.

    The fit adds the least time to every op once; the further runs of an op have theirs here.
    """
    runs = {
        f"{i}": Op(
            name=f"{i}",
            kind=op.kind,
            flops=op.work.flops,
            bytes_accessed=op.work.bytes_accessed,
            work_basis=op.work.basis,
        )
        for i, op in enumerate(within)
    }
    once = roofline_costs(OpGraph(runs.values(), ()), device)
    own = {op.name for op in graph.ops} - {op.name for op in within}
    costs = {op: cost for op, cost in roofline_costs(graph, device).costs.items() if op in own}
    unknown = set()
    for i, op in enumerate(within):
        if op.runs is None:
            unknown.add(op.name)
            continue
        time_ns = op.runs * (once.time_ns(f"{i}") + device.launch_overhead_ns)
        before = costs.get(op.name)
        so_far_ns = -device.launch_overhead_ns if before is None else before.time_ns
        costs[op.name] = OpCost(time_ns=so_far_ns + time_ns, basis=CostBasis.ROOFLINE)
    return CostTable(costs={op: cost for op, cost in costs.items() if op not in unknown})


def _print(name: str, found: Found) -> None:
    device = found.device
    assert device.peak_flops_per_s is not None
    assert device.memory_bandwidth_bytes_per_s is not None
    print(
        f"\n{name}: {found.op_time_ns / 1e6:.2f} ms of ops, {found.formula_share:.1%} in kinds with "
        f"a formula; no prediction for {found.unpriced_share:.1%}\n"
        f"calibrated: {device.peak_flops_per_s / 1e9:.0f} Gflop/s, "
        f"{device.memory_bandwidth_bytes_per_s / 1e9:.1f} GB/s, "
        f"{device.launch_overhead_ns / 1e3:.1f} µs per op"
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
        )


def _print_summary(found: Mapping[str, Found]) -> None:
    print(f"\n{'sample':<22}{'formula':>9}{'within 2×':>11}{'time in these':>15}{'flat':>8}  off")
    for name, of in found.items():
        important = leading(of.roofline, _LEADING_SHARE)
        flat = leading(of.flat, _LEADING_SHARE)
        good = [fit for fit in important if fit.is_within(_FACTOR)]
        off = [f"{fit.kind} {fit.ratio or 0:.2f}×" for fit in important if fit not in good]
        flat_good = sum(fit.is_within(_FACTOR) for fit in flat)
        share = sum(fit.share for fit in good) / sum(fit.share for fit in important)
        print(
            f"{name:<22}{of.formula_share:>9.1%}{f'{len(good)} of {len(important)}':>11}"
            f"{share:>15.0%}{f'{flat_good} of {len(flat)}':>8}  {', '.join(off)}"
        )


def _answer(path: Path, answer: Any) -> Any:
    if isinstance(answer, ChildFailure):
        raise SystemExit(f"{path}: {answer.message}\n{answer.output_tail}")
    return answer


class _Silent:
    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Say nothing."""

    def note(self, what: str) -> None:
        """Say nothing."""


if __name__ == "__main__":
    main()
