"""From the ops and copies of recorded steps to one `StepProfile`.

Model: compute time of a device is the time during which at least one op runs on it, however many
threads or streams it has. A copy is exposed while the device that waits for it computes nothing; a
device waits exposed while any copy to it is, and what waits at the same moment counts once.
Figures per step are medians over the steps, rounded down to whole ns and bytes; rows of the
activity table sum over all steps.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.graph.op import CONTROL_PORT
from placement_advisor.measurement.laws import of_step
from placement_advisor.measurement.measurement import (
    Activity,
    SizeBasis,
    Span,
    StepProfile,
    TransferTotal,
)
from placement_advisor.simulator.intervals import by_key, length, length_outside, merged, shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.simulator.intervals import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One run of an op; ``own_ns`` is its own time on its device, apart from all other ops.

    ``op`` is None for device work that belongs to no op. ``row`` is its line in the activity table.
    """

    device: str
    op: str | None
    row: str
    start_ns: int
    end_ns: int
    own_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy; ``waiting`` is the device whose compute can hide it.

    ``size_basis`` says where its bytes come from, if they are known.
    """

    source: str
    target: str
    waiting: str
    tensor: str
    row: str
    size_bytes: int | None
    size_basis: SizeBasis
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """All that ran within one step."""

    start_ns: int
    end_ns: int
    work: tuple[Work, ...]
    copies: tuple[Copy, ...]


def summarise(steps: Sequence[RecordedStep], devices: Sequence[str]) -> StepProfile:
    """Summarise at least one step that ran on these devices."""
    busy = [_busy(step, devices) for step in steps]
    busy_ns = [{device: length(spans) for device, spans in of.items()} for of in busy]
    exposed_ns = [_exposed_by_device(step, of) for step, of in zip(steps, busy, strict=True)]
    broken = dict.fromkeys(
        law
        for step, computing, waiting in zip(steps, busy_ns, exposed_ns, strict=True)
        for law in of_step(step.end_ns - step.start_ns, computing, waiting, _under_way_ns(step))
    )
    return StepProfile(
        step_ns=tuple(step.end_ns - step.start_ns for step in steps),
        compute_ns=_medians(busy_ns),
        exposed_by_device=_medians(exposed_ns),
        broken_laws=tuple(broken),
        transfers=_transfers(steps, busy),
        activities=_activities(steps),
        op_ns=_op_ns(steps),
        timeline=_timeline(_median_step(steps)),
    )


def tensor_name(producer: str, port: int) -> str:
    """Return the tensor's name as TensorFlow writes it: ``op:port``, ``^op`` for a control edge."""
    return f"^{producer}" if port == CONTROL_PORT else f"{producer}:{port}"


def _medians(of_steps: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {device: int(median(of[device] for of in of_steps)) for device in of_steps[0]}


def _exposed_by_device(step: RecordedStep, busy: Mapping[str, list[Interval]]) -> dict[str, int]:
    in_flight = by_key((copy.waiting, (copy.start_ns, copy.end_ns)) for copy in step.copies)
    return {
        device: length_outside(in_flight[device], computing) for device, computing in busy.items()
    }


def _under_way_ns(step: RecordedStep) -> dict[tuple[str, str], int]:
    spans = by_key(((c.source, c.target), (c.start_ns, c.end_ns)) for c in step.copies)
    return {pair: length(merged(of_pair)) for pair, of_pair in spans.items()}


def _busy(step: RecordedStep, devices: Iterable[str]) -> dict[str, list[Interval]]:
    intervals: dict[str, list[Interval]] = {device: [] for device in devices}
    for work in step.work:
        intervals[work.device].append((work.start_ns, work.end_ns))
    return {device: merged(of_device) for device, of_device in intervals.items()}


def _transfers(
    steps: Sequence[RecordedStep], busy: Sequence[Mapping[str, list[Interval]]]
) -> tuple[TransferTotal, ...]:
    pairs = dict.fromkeys((copy.source, copy.target) for step in steps for copy in step.copies)
    totals = []
    for source, target in sorted(pairs):
        per_step = [
            [copy for copy in step.copies if (copy.source, copy.target) == (source, target)]
            for step in steps
        ]
        sizes = [copy.size_bytes for copies in per_step for copy in copies]
        bases = {copy.size_basis for copies in per_step for copy in copies}
        totals.append(
            TransferTotal(
                source=source,
                target=target,
                count=int(median(len(copies) for copies in per_step)),
                size_bytes=None
                if None in sizes
                else int(median(sum(copy.size_bytes or 0 for copy in c) for c in per_step)),
                size_basis=None
                if None in sizes
                else SizeBasis.SHAPES
                if SizeBasis.SHAPES in bases
                else SizeBasis.PROFILE,
                time_ns=int(median(sum(_link_ns(copies)) for copies in per_step)),
                exposed_ns=int(
                    median(
                        _exposed_ns(copies, of_step)
                        for copies, of_step in zip(per_step, busy, strict=True)
                    )
                ),
            )
        )
    return tuple(totals)


def _link_ns(copies: Sequence[Copy]) -> list[int]:
    """Return the time of each copy of one pair, with copies at the same moment sharing it."""
    return shares([(copy.start_ns, copy.end_ns) for copy in copies])


def _exposed_ns(copies: Sequence[Copy], busy: Mapping[str, list[Interval]]) -> int:
    """Time in which a copy of one pair is under way and the device that waits is idle."""
    if not copies:
        return 0
    in_flight = [(copy.start_ns, copy.end_ns) for copy in copies]
    return length_outside(in_flight, busy[copies[0].waiting])


def _activities(steps: Iterable[RecordedStep]) -> tuple[Activity, ...]:
    times: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for step in steps:
        for work in step.work:
            times[work.row, False].append(work.own_ns)
        for pair in sorted({(copy.source, copy.target) for copy in step.copies}):
            copies = [copy for copy in step.copies if (copy.source, copy.target) == pair]
            for copy, link_ns in zip(copies, _link_ns(copies), strict=True):
                times[copy.row, True].append(link_ns)
    rows = [
        Activity(
            name=name,
            calls=len(of_row),
            total_ns=sum(of_row),
            min_ns=min(of_row),
            max_ns=max(of_row),
            is_copy=is_copy,
        )
        for (name, is_copy), of_row in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _op_ns(steps: Iterable[RecordedStep]) -> dict[str, int]:
    """Median over the steps in which the op ran; runs within one step add up."""
    times: defaultdict[str, list[int]] = defaultdict(list)
    for step in steps:
        of_step: defaultdict[str, int] = defaultdict(int)
        for work in step.work:
            if work.op is not None:
                of_step[work.op] += work.own_ns
        for op, time_ns in of_step.items():
            times[op].append(time_ns)
    return {op: int(median(of_op)) for op, of_op in sorted(times.items())}


def _median_step(steps: Sequence[RecordedStep]) -> RecordedStep:
    by_length = sorted(steps, key=lambda step: (step.end_ns - step.start_ns, step.start_ns))
    return by_length[(len(steps) - 1) // 2]


def _timeline(step: RecordedStep) -> tuple[Span, ...]:
    spans = [
        Span(
            lane=work.device,
            name=work.op or work.row,
            start_ns=work.start_ns - step.start_ns,
            end_ns=work.end_ns - step.start_ns,
            is_copy=False,
        )
        for work in step.work
    ]
    spans += [
        Span(
            lane=f"{copy.source} → {copy.target}",
            name=copy.tensor,
            start_ns=copy.start_ns - step.start_ns,
            end_ns=copy.end_ns - step.start_ns,
            is_copy=True,
        )
        for copy in step.copies
    ]
    return tuple(sorted(spans, key=lambda span: (span.start_ns, span.lane, span.name)))
