"""PA301 to PA308: what slows the step down whatever its placement.

PA301: the device computes for less than 90 % of a step, since the input is slower than the step,
or since launches and the call take the rest. Of slow input the saving is known: at least what a
batch takes beyond a step, at most all of a batch where nothing shows that the two overlap. PA302:
a larger batch gives more samples per second (`cost/batch.py`): measured at several batches, or
simulated where no step ran. PA303: the input pipeline does not overlap with the step, by the
kinds of its transformations and its time alone. PA304: replicas of a split batch draw their own
random numbers, or keep statistics of their own samples. PA305: a GPU with units for 16-bit floats
computes in float32, by a simulation with mixed precision. PA306: elementwise ops that XLA would
fuse. PA307: an optimizer updates whole tables of which a step reads a few rows
(`graph/dense_updates`). PA308: Keras' `fit` calls the device for each step, measured with one
step per call and with several.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import ceil, exp, hypot, log
from statistics import mean, median
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import EXTRAPOLATED, Finding, Saving
from placement_advisor.analysis.findings.evidence import (
    certain_saving,
    saving_by_ops,
    saving_by_run,
)
from placement_advisor.cost import batch as batch_costs
from placement_advisor.cost.gpu import kernel_times
from placement_advisor.cost.table import ASSUMED_WITHIN, CostTable
from placement_advisor.graph.name_patterns import first_names, listed
from placement_advisor.graph.op import COMPUTING_ROLES, Op
from placement_advisor.graph.op_work import elementwise
from placement_advisor.graph.slow_patterns import DenseUpdate, dense_updates, with_fusions
from placement_advisor.measurement import measurement as measurements
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.answers import MIXED_PRECISION
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.step_growth import GrowingStep


# Below a tenth of the step, even input that is not overlapped at all costs less than PA301's tenth.
MIN_INPUT_SHARE = 0.1
# What stands behind a prefetch and hands its batches on as they are.
_NO_WORK = frozenset({"Options", "Repeat", "Take", "Skip"})


def find_input_without_overlap(evidence: Evidence) -> Iterator[Finding]:
    """Return what the pipeline lacks, if it takes a noticeable part of a step's time."""
    timing = evidence.results.input_timing
    if timing is None or not timing.batch_ns or not timing.transformations:
        return
    step_ns, basis = evidence.step_alone()
    batch_ns = mean(timing.batch_ns)
    kinds = _transformation_kinds(timing.transformations)
    missing = _missing_transformations(kinds)
    if (
        overlaps_with_step(timing.transformations)
        or not missing
        or batch_ns < MIN_INPUT_SHARE * step_ns
    ):
        return
    yield Finding(
        finding=f"the input pipeline has no {' and no '.join(missing)}, and a batch takes "
        f"{format_ns(batch_ns)} (measured, alone), {format_share(batch_ns / step_ns)} of a "
        f"step's {format_ns(step_ns)} ({basis})",
        action=f"add {', '.join(missing.values())}",
        where={},
    )


def missing_speedups(transformations: tuple[str, ...]) -> tuple[str, ...]:
    """Return what would make a pipeline faster and is not in it, as far as it tells how it is made.

    >>> lacking(("TensorSliceDataset", "MapDataset", "PrefetchDataset"))
    ('parallel map', 'cache')
    """
    kinds = _transformation_kinds(transformations)
    lacks = {
        "parallel map": "Map" in kinds or not kinds,
        "prefetch": "Prefetch" not in kinds,
        "cache": "Cache" not in kinds,
    }
    return tuple(what for what, is_lacking in lacks.items() if is_lacking)


def overlaps_with_step(transformations: tuple[str, ...]) -> bool:
    """Return whether the next batch is made while a step runs: the pipeline ends in a prefetch."""
    kinds = [kind for kind in _transformation_kinds(transformations) if kind not in _NO_WORK]
    return kinds[-1:] == ["Prefetch"]


def _transformation_kinds(transformations: tuple[str, ...]) -> list[str]:
    return [kind.removesuffix("Dataset") for kind in transformations]


def _missing_transformations(kinds: list[str]) -> dict[str, str]:
    """Return what a pipeline that does not end in a prefetch lacks, with the call that adds it."""
    where = "prefetch at its end" if "Prefetch" in kinds else "prefetch"
    missing = {where: ".prefetch(tf.data.AUTOTUNE) at the end"}
    if "Map" in kinds:
        missing["parallel map"] = "num_parallel_calls=tf.data.AUTOTUNE to map"
    if any(kind in ("Map", "ParallelMap") for kind in kinds) and "Cache" not in kinds:
        missing["cache"] = (
            ".cache() after the part that is the same in every epoch, if it fits in memory"
        )
    return missing


# Above this, what the host costs is of the order of what a verdict tolerates. Judgement.
BUSY_SHARE = 0.9
# A pipeline that prefetches hands batches out in bursts: what it takes in parts of its time says
# how steady it is. As few as tell, by judgement.
_INPUT_PARTS = 4


def find_device_waits_for_host(evidence: Evidence) -> Iterator[Finding]:
    """Return the input's finding if it is slower than the step, else that of the host."""
    found = _slow_input(evidence) or _slow_host(evidence)
    if found is not None:
        yield found


def _slow_input(evidence: Evidence) -> Finding | None:
    timing = evidence.results.input_timing
    if timing is None or not timing.batch_ns:
        return None
    step_ns, basis = evidence.step_alone()
    batch_ns = mean(timing.batch_ns)
    if step_ns >= BUSY_SHARE * batch_ns:
        return None
    rate = ""
    if evidence.traced.batch_size is not None:
        rate = f" ({evidence.traced.batch_size * 1e9 / batch_ns:,.0f} samples/s)"
    return Finding(
        finding=f"a batch takes {format_ns(batch_ns)}{rate} to load (measured, alone) and a "
        f"step {format_ns(step_ns)} ({basis}). Any split leaves a device "
        f"busy for at most {format_share(step_ns / batch_ns)} of the time",
        action="make the input faster first: "
        + ", ".join(
            (*missing_speedups(timing.transformations), "larger reads", "less work per sample")
        ),
        where={},
        saving=_input_saving(evidence, timing, step_ns, basis),
    )


def _input_saving(
    evidence: Evidence, timing: measurements.InputTiming, step_ns: float, basis: str
) -> Saving | None:
    """Return what input saves that keeps up with the step."""
    batches_ns = timing.batch_ns
    each = max(1, len(batches_ns) // _INPUT_PARTS)
    parts = [mean(batches_ns[i : i + each]) for i in range(0, len(batches_ns) - each + 1, each)]
    ends = step_ns / evidence.prices.doubt.ops, step_ns * evidence.prices.doubt.ops
    if basis == "measured":
        interval = measurements.median_interval(evidence.timed_alone_ns)
        ends = (step_ns, step_ns) if interval is None else (interval.low, interval.high)
    hidden_ns = ends[0] if overlaps_with_step(timing.transformations) else 0.0
    others = [min(parts) - ends[1], max(parts) - hidden_ns]
    batch_ns = mean(batches_ns)
    return certain_saving(batch_ns, batch_ns - step_ns, others, basis)


def _slow_host(evidence: Evidence) -> Finding | None:
    alone, device = evidence.alone, evidence.cluster.devices[0].name
    left_out = evidence.traced.left_out
    if left_out.has_xla:
        return None
    step_ns, compute_ns = alone.schedule.step_ns, alone.schedule.compute_ns.get(device, 0)
    if not compute_ns or compute_ns >= BUSY_SHARE * step_ns:
        return None
    return Finding(
        finding=f"{device} computes for {format_share(compute_ns / step_ns)} of a step "
        f"({format_ns(compute_ns)} of {format_ns(step_ns)}, simulated); the rest goes to launching "
        "ops, to the host and to the call",
        action="have fewer and larger ops first: a larger batch, fused layers and optimizers"
        + (", jit_compile=True on one device" * (evidence.traced.python_call is None))
        + (", several steps per call (steps_per_execution)" * (left_out.steps_per_call == 1)),
        where={"device": device},
    )


_LEAST_POINTS = 3
_MEASURED_NATIVE = "measured, your step as it is on this machine"
_IF_IT_FITS = "if it fits and training allows it, before splitting"


def find_batch_too_small(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding if a larger batch is known to be faster by more than a ninth."""
    growing = evidence.growing
    if growing is None:
        return
    found = _measured_batch_finding(evidence, growing)
    found = found or _simulated_batch_finding(evidence, growing)
    if found is not None:
        yield found


def _measured_batch_finding(evidence: Evidence, growing: GrowingStep) -> Finding | None:
    points, growth = evidence.results.batch_points, growing.growth
    found = batch_costs.larger_batch_by(
        points, growth.batch, growing.worth, is_even=not growth.faster
    )
    if found is None:
        return None
    now = next(point for point in points if point.batch == growth.batch)
    ran = next((point for point in points if point.batch == found.batch), None)
    if ran is None:
        saving = _extrapolated_saving(evidence, growing, found.batch)
        return _batch_finding(evidence, growing, found, saving, _MEASURED_NATIVE)
    if now.samples_per_s >= batch_costs.GOOD_SHARE * ran.samples_per_s:
        return None
    then_ns = now.batch * ran.step_ns / ran.batch
    doubt = exp(hypot(log(now.within), log(ran.within)))
    saving_ns, *ends_ns = (now.step_ns - then_ns * factor for factor in (1, 1 / doubt, doubt))
    return Finding(
        finding=f"a step makes {now.samples_per_s:,.0f} samples/s at batch {now.batch} and "
        f"{ran.samples_per_s:,.0f} at batch {ran.batch} ({_MEASURED_NATIVE})"
        f"{_peak_text(found, growing)}",
        action=f"take a batch of {ran.batch}, {_IF_IT_FITS}"
        f"{_verdict_at_batch(evidence, ran.batch)}",
        where={},
        saving=saving_by_run(now.step_ns, saving_ns, ends_ns),
        batch_size=ran.batch if evidence.traced.takes_batch_size else None,
    )


def _simulated_batch_finding(evidence: Evidence, growing: GrowingStep) -> Finding | None:
    placement, growth = evidence.alone.placement, growing.growth
    if evidence.results.batch_points:
        return None
    found = batch_costs.larger_batch(
        lambda samples: growing.step_ns(placement, samples),
        growth.batch,
        is_even=not growth.faster,
    )
    if found is None:
        return None
    saving = _simulated_saving(evidence, growing, placement, found.batch)
    return _batch_finding(evidence, growing, found, saving, "simulated")


def _extrapolated_saving(
    evidence: Evidence, growing: GrowingStep, larger: int | None
) -> Saving | None:
    """Return what a batch saves that did not run, by lines through all points, and through two.

    None if there are but two: whether these lie on a line nobody knows.
    """
    batch = growing.growth.batch
    points = [point for point in evidence.results.batch_points if point.batch <= batch]
    if larger is None or len(points) < _LEAST_POINTS:
        return None
    now_ns = next(point.step_ns for point in points if point.batch == batch)
    saving_ns, *others_ns = [
        now_ns - batch * batch_costs.fit_batch_time(some, growing.worth).step_ns(larger) / larger
        for some in (points, *combinations(points, 2))
    ]
    return certain_saving(now_ns, saving_ns, others_ns, EXTRAPOLATED)


def _simulated_saving(
    evidence: Evidence, growing: GrowingStep, placement: Placement, larger: int | None
) -> Saving | None:
    """Return what a batch saves by what both steps may take where costs are wrong."""
    if larger is None:
        return None
    batch = growing.growth.batch
    now, share = growing.simulator(batch), batch / larger
    ratio = Sensitivity(now, placement, evidence.prices.doubt).ratio(
        placement, growing.simulator(larger)
    )
    now_ns = now.step_ns(placement)
    saving_ns, *ends_ns = (
        now_ns * (1 - each * share) for each in (ratio.ratio, ratio.low, ratio.high)
    )
    # What costs that were measured at this batch come to at another is no simulation of that.
    basis = "simulated" if evidence.prices.is_assumed else EXTRAPOLATED
    return certain_saving(now_ns, saving_ns, ends_ns, basis)


def _batch_finding(
    evidence: Evidence,
    growing: GrowingStep,
    found: batch_costs.LargerBatch,
    saving: Saving | None,
    words: str,
) -> Finding:
    """Return the finding of a batch that did not run; ``words`` say by what it is known."""
    batch, best, larger = growing.growth.batch, found.best_samples_per_s, found.batch
    more = f"that is more than {batch_costs.MAX_FACTOR} times as large"
    wanted = more if larger is None else f"of {larger}"
    return Finding(
        finding=f"at batch {batch} a step reaches {format_share(found.share)} of the best rate, "
        f"{found.share * best:,.0f} of {best:,.0f} samples/s ({words}){_peak_text(found, growing)}",
        action=f"take a batch {wanted}, for {format_share(batch_costs.GOOD_SHARE)} of the best "
        f"rate, {_IF_IT_FITS}{_verdict_at_batch(evidence, larger)}",
        where={},
        saving=saving,
        batch_size=larger if evidence.traced.takes_batch_size else None,
    )


def _peak_text(found: batch_costs.LargerBatch, growing: GrowingStep) -> str:
    if found.peak is None:
        return ""
    return (
        f"; beyond about {found.peak:,} samples the rate falls again: for "
        f"{growing.growth.faster[0]!r} each is more work the more there are"
    )


def _verdict_at_batch(evidence: Evidence, batch: int | None) -> str:
    """Return a sentence if a larger batch changes the verdict, as far as that was simulated."""
    swept = evidence.break_even
    if batch is None or swept is None or swept.batch is None:
        return ""
    best = swept.best_at(batch)
    if best is None:
        return ""
    wins, is_split = best.ratio < swept.worthwhile_ratio, evidence.recommended is not None
    if wins == is_split or evidence.is_of_batch(evidence.recommended):
        return ""
    if is_split:
        return f". At {batch} samples no split would win (simulated)"
    return f". At {batch} samples a split ({best.split}) would win (simulated)"


_MAX_LAYERS_NAMED = 3


def find_replicas_differ(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding if the batch was split, and replicas compute something of their own."""
    ops = [evidence.graph.op(name) for name in evidence.own_of_replicas]
    drawn = _layers_of(op for op in ops if op.kind in elementwise.RANDOM_FORMULAS)
    kept = _layers_of(op for op in ops if op.kind not in elementwise.RANDOM_FORMULAS)
    parts = []
    if drawn:
        parts.append(f"random numbers of its own in {listed(drawn, _MAX_LAYERS_NAMED)}")
    if kept:
        parts.append(f"statistics of its own samples in {listed(kept, _MAX_LAYERS_NAMED)}")
    if not parts:
        return
    yield Finding(
        finding=f"a split of the batch changes the step: each device takes {' and '.join(parts)}",
        action="compare losses over some epochs before you trust a faster step, and give each "
        "device enough samples for its statistics",
        where=evidence.where(evidence.own_of_replicas[0]),
        is_hypothetical=not any(
            each.samples and each.name == evidence.recommended for each in evidence.candidates
        ),
    )


def _layers_of(ops: Iterable[Op]) -> list[str]:
    return list(dict.fromkeys(op.layer or op.name for op in ops))


def find_plain_float32(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding if one device would gain by mixed precision."""
    assumed = evidence.assumed
    is_mixed = MIXED_PRECISION in evidence.traced.left_out.settings
    if assumed is None or is_mixed or not kernel_times.computes_in_float32(evidence.graph):
        return
    policy = kernel_times.policy_for(assumed.gpu)
    if policy is None:
        return
    mixed_ns = assumed.step_ns(kernel_times.with_policy(evidence.graph, policy))
    mixed_ns += kernel_times.casts_ns(evidence.graph, assumed.device, assumed.gpu)
    saving = saving_by_ops(assumed.now_ns, mixed_ns, assumed.within)
    if saving is None:
        return
    yield Finding(
        finding=f"products are in float32: with forward and backward pass in {policy.value}, "
        f"one {assumed.device.gpu} would take {format_ns(mixed_ns)} instead of "
        f"{format_ns(assumed.now_ns)} a step (assumed times)",
        action=f"try keras.mixed_precision.set_global_policy('mixed_{policy.value}') on one "
        "device before splitting, and compare the loss",
        where={},
        saving=saving,
    )


_MAX_KINDS_NAMED = 3


def find_unfused_elementwise(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding if one device would gain by fusing elementwise ops."""
    assumed = evidence.assumed
    if assumed is None or evidence.traced.python_call is not None:
        return
    fused = with_fusions(evidence.graph)
    fused_ns = assumed.step_ns(fused)
    saving = saving_by_ops(assumed.now_ns, fused_ns, assumed.within)
    if saving is None:
        return
    fewer = len(evidence.graph) - len(fused)
    takes = (
        f"one {assumed.device.gpu} would then take {format_ns(fused_ns)} instead of "
        f"{format_ns(assumed.now_ns)} a step (assumed times)"
    )
    compare = (
        "XLA ignores devices within a step, so a split by ops cannot use it: compare splits "
        "with one compiled device"
    )
    finding = f"{fewer} elementwise ops could be one with the op that reads them: {takes}"
    action = (
        "compile the step on one device with jit_compile=True, which Keras' fit does by itself on "
        f"GPUs{_not_on_gpu(evidence.graph)}; {compare}"
    )
    if evidence.traced.left_out.has_xla:
        finding = (
            f"your program has XLA make {fewer} elementwise ops one with the op that reads them, "
            f"which is left out of all steps here: {takes}"
        )
        action, saving = compare, None
    yield Finding(
        finding=finding,
        action=action,
        where={},
        saving=saving,
    )


def _not_on_gpu(graph: OpGraph) -> str:
    """Say which kinds no GPU computes, and so no XLA either."""
    kinds = {
        op.kind for op in graph.ops if op.role in COMPUTING_ROLES and "GPU" not in op.device_kinds
    }
    if not kinds:
        return ""
    return (
        f" (not with {first_names(sorted(kinds), _MAX_KINDS_NAMED)} in it, which no GPU computes)"
    )


# Work on rows picks them from memory here and there, and has ops of its own: with a fifth of the
# table nothing was gained (pages/PA307.md). Judgement.
MAX_ROWS_SHARE = 0.1
# Of seven recommenders that nobody tuned for, none saved more than 1.73 times what was simulated,
# or less than a 1.23th of it (pages/PA307.md).
_TABLE_SAVING_WITHIN = 1.75


def find_table_updated_whole(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding if one device would gain by updating rows alone."""
    alone = evidence.alone
    updates = [u for u in dense_updates(evidence.graph) if u.rows_share <= MAX_ROWS_SHARE]
    if not updates:
        return
    costs = {name: _costs_of_rows(table, updates) for name, table in evidence.prices.costs.items()}
    now_ns = alone.schedule.step_ns
    rows_ns = Simulator(evidence.graph, costs, evidence.cluster).step_ns(alone.placement)
    within = ASSUMED_WITHIN if evidence.prices.is_assumed else _TABLE_SAVING_WITHIN
    saving = saving_by_ops(now_ns, rows_ns, within)
    if saving is None:
        return
    largest = max(updates, key=lambda update: update.size_bytes)
    yield Finding(
        finding=f"{_tables_text(updates, largest)}: a step needs at most "
        f"{format_share(_rows_share(updates))} of it and updates all of it, with "
        f"{sum(len(u.share_of) for u in updates)} ops. Updating only those rows would take one "
        f"device {format_ns(rows_ns)} instead of {format_ns(now_ns)} a step (simulated)",
        action=f"{_table_action(updates)}; `advisor explain PA307` has the code",
        where=evidence.where(largest.table),
        saving=saving,
    )


def _costs_of_rows(table: CostTable, updates: list[DenseUpdate]) -> CostTable:
    """Return the costs with updates of rows alone."""
    costs = dict(table.costs)
    for update in updates:
        for name, share in update.share_of.items():
            if name in costs:
                costs[name] = replace(costs[name], time_ns=round(costs[name].time_ns * share))
    return CostTable(costs=costs)


def _rows_share(updates: list[DenseUpdate]) -> float:
    """Return the largest share of rows, in whole percent above it."""
    return ceil(max(update.rows_share for update in updates) * 100) / 100


def _tables_text(updates: list[DenseUpdate], largest: DenseUpdate) -> str:
    named = f"{largest.table} ({format_bytes(largest.size_bytes)})"
    return named if len(updates) == 1 else f"{len(updates)} tables, the largest {named}"


def _table_action(updates: list[DenseUpdate]) -> str:
    if any(update.slots for update in updates):
        return (
            "update only the rows of a batch, with an optimizer that leaves the averages of "
            "other rows alone. This is another optimizer, so compare the loss"
        )
    return (
        "keep the gradients of the table as tf.IndexedSlices until they are applied: "
        "tf.clip_by_global_norm does, Keras' global_clipnorm does not"
    )


# Step times on a busy machine wander by a tenth. All rounds have to agree besides. Judgement.
MIN_LOOP_SHARE = 0.1


def find_one_step_per_call(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding if several steps for each call are surely faster."""
    timing = evidence.results.loop_timing
    if timing is None or min(timing.saved_shares) <= 0:
        return
    one_ns, several_ns = median(timing.one_ns), median(timing.several_ns)
    shares = timing.saved_shares
    saved, *ends = (one_ns * share for share in (median(shares), min(shares), max(shares)))
    if saved < MIN_LOOP_SHARE * one_ns:
        return
    yield Finding(
        finding=f"in Keras' fit a step takes {format_ns(one_ns)}, or {format_ns(several_ns)} "
        f"with {timing.steps_per_call} steps a call. The rest is Python between steps (measured: "
        "your model on all of this machine, one batch repeated)",
        action=f"model.compile(..., steps_per_execution={timing.steps_per_call}), if nothing "
        "has to look at each step: callbacks then see every "
        f"{timing.steps_per_call}th",
        where={},
        saving=saving_by_run(one_ns, saved, ends),
    )
