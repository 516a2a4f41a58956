"""Holds what came back of the known step against what it must be.

Left out: mistakes that leave all of these figures as they are.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.acceptance.finding import Finding, Outcome, judged
from placement_advisor.analysis.acceptance.judge_copies import (
    bytes_moved,
    copies,
    order,
    peer_access,
    topology,
)
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.tf.acceptance.known_step import COPIES, OPS, outputs
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.acceptance.observed import Acceptance, PairRun
    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.tf.answers import Prepared

# The least share of a timed step that a profiled one may last: a shared machine ran one loop in 54
# or in 88 ms for seconds at a time, the profiler only lengthens steps; a shorter one lacks a part.
_LEAST_OF_STEP = 0.5
# Device time of no op that is worth a word: the profiler's own rounding is far below.
_TOLD_SHARE = 0.01
_NAMED = 3


def findings_of(pair: PairRun) -> tuple[Finding, ...]:
    """Return what is to be said of the step on two devices, in a fixed order."""
    return tuple(_findings(pair))


def is_trusted(acceptance: Acceptance) -> bool:
    """Return whether nothing is off on any pair."""
    return not any(
        finding.outcome is Outcome.OFF for pair in acceptance.pairs for finding in findings_of(pair)
    )


def _findings(pair: PairRun) -> Iterator[Finding]:
    if pair.problem is not None:
        yield Finding(name="run", outcome=Outcome.OFF, finding=pair.problem)
    if pair.prepared is not None:
        yield _placed(pair, pair.prepared)
    if pair.wrong_outputs is not None:
        yield _values(pair.wrong_outputs)
    if pair.profile is None:
        return
    yield _steps(pair, pair.profile)
    yield _ops(pair, pair.profile)
    yield copies(pair, pair.profile)
    yield bytes_moved(pair, pair.profile)
    yield order(pair, pair.profile)
    yield _op_times(pair, pair.profile)
    yield peer_access(pair, pair.profile)
    yield topology(pair)


def _placed(pair: PairRun, prepared: Prepared) -> Finding:
    """Judge what TensorFlow made of the placement: the graphs that it executes."""
    moved = [each for each in prepared.moved_ops if each.partition(": ")[0] in OPS]
    planned = Counter((copy.producer, pair.device_at[copy.source]) for copy in COPIES)
    made = Counter((each.producer, each.source) for each in prepared.crossings)
    cross = planned & made
    counts = [
        f"{sum(count for (_, source), count in cross.items() if source == device)} of "
        f"{sum(count for (_, source), count in planned.items() if source == device)}"
        for device in pair.device_at.values()
    ]
    problems = [f"TensorFlow moved {first_names(moved, _NAMED)}"] if moved else []
    problems += [f"{name} leaves {device} too" for name, device in made - planned]
    if planned - made:
        lacking = [name for name, _ in planned - made]
        problems.append(f"{first_names(lacking, _NAMED)} should cross")
    finding = (
        f"{len(OPS) - len(moved)} of {len(OPS)} ops where they were put; {counts[0]} tensors cross "
        f"there, {counts[1]} back"
    )
    return judged("placed", finding, problems)


def _values(wrong: tuple[str, ...]) -> Finding:
    count = len(outputs())
    finding = f"{count - len(wrong)} of {count} outputs are what they must be, to the last bit"
    return judged("values", finding, [f"wrong: {', '.join(wrong)}"] if wrong else [])


def _steps(pair: PairRun, profile: StepProfile) -> Finding:
    found, asked = len(profile.step_ns), pair.profiled_steps
    profiled_ns = median(profile.step_ns)
    finding = f"{found} of {asked} in the profile; {format_ns(profiled_ns)} each"
    problems = [] if found == asked else [f"{asked - found} are lacking"]
    if pair.step_ns is not None:
        finding += f", {format_ns(pair.step_ns)} without the profiler"
        if profiled_ns < pair.step_ns * _LEAST_OF_STEP:
            problems.append("the profile does not cover the steps")
    problems += [law.what for law in profile.broken_laws]
    return judged("steps", finding, problems)


def _ops(pair: PairRun, profile: StepProfile) -> Finding:
    """Judge on which devices the profile saw ops, in the step of median length."""
    spans = [span for span in profile.timeline if not span.is_copy]
    wrong = {
        f"{span.name} on {span.lane}"
        for span in spans
        if pair.device_of.get(span.name, span.lane) != span.lane
    }
    seen = {span.name for span in spans}
    lacking = [name for name in OPS if name not in seen]
    finding = f"{len(OPS) - len(lacking)} of {len(OPS)} seen in the profile"
    problems = [f"not seen: {first_names(lacking, _NAMED)}"] if lacking else []
    if wrong:
        problems.append(f"not where they were put: {first_names(sorted(wrong), _NAMED)}")
    else:
        finding += ", all where they were put"
    all_ns = sum(span.end_ns - span.start_ns for span in spans)
    nameless_ns = sum(s.end_ns - s.start_ns for s in spans if s.name not in pair.device_of)
    if nameless_ns > _TOLD_SHARE * all_ns:
        finding += f"; {format_share(nameless_ns / all_ns)} of device time is of no op"
    return judged("ops", finding, problems)


def _op_times(pair: PairRun, profile: StepProfile) -> Finding:
    if not pair.expected:
        finding = "no table says what they must be here"
        return Finding(name="op times", outcome=Outcome.UNKNOWN, finding=finding)
    told, problems = [], []
    for each in pair.expected:
        times = [profile.op_ns[name] for name in each.products if name in profile.op_ns]
        if not times:
            problems.append(f"no product seen on {each.device}")
            continue
        # What runs beside an op only lengthens it.
        seen_ns = min(times)
        told.append(
            f"{each.products[0]} on {each.device} {format_ns(seen_ns)}, "
            f"{format_ns(each.time_ns)} {each.source}"
        )
        if not each.time_ns / each.within <= seen_ns <= each.time_ns * each.within:
            factor = max(seen_ns, 1) / each.time_ns
            problems.append(f"on {each.device} {factor:.3g} times what it must be")
    return judged("op times", "; ".join(told), problems)
