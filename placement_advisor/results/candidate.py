"""A candidate of an analysis as it is published: its prediction, its measurement, why it failed.

Times are integer nanoseconds and sizes integer bytes, both per step. None means: not measured, not
known, or does not apply; it is never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen

from placement_advisor.defaults import BASELINE
from placement_advisor.files.contract import (
    ByName,
    Count,
    NotNegative,
    Ns,
    Positive,
    Prose,
    Ratio,
    Rows,
    Text,
    like,
)
from placement_advisor.measurement.measurement import FailureKind, Interval, SizeBasis, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis import analysis_result as found
    from placement_advisor.measurement import measurement as taken
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps that were timed, with the 95 % bootstrap interval of their median."""

    median: Ns
    ci95: tuple[Ns, Ns]
    samples: Annotated[Rows[Ns], MinLen(1)]
    """Every timed step, in order."""

    @classmethod
    def of(cls, samples: Sequence[int]) -> Steps:
        """Return them as they are published."""
        from placement_advisor.measurement.measurement import bootstrap_median

        interval = bootstrap_median(samples)
        return cls(
            median=round(interval.median),
            ci95=(round(interval.low), round(interval.high)),
            samples=tuple(samples),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRange:
    """A ratio of step times, simulated, with its least and most if costs are wrong."""

    ratio: Ratio
    low: Ratio
    high: Ratio

    def __post_init__(self) -> None:
        check_order(self.low, self.ratio, self.high)

    @property
    def interval(self) -> Interval:
        """It as an interval."""
        return Interval(median=self.ratio, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """A ratio of step times within rounds, with an interval that holds at every look at them."""

    median: Ratio
    ci95: tuple[Ratio, Ratio]

    def __post_init__(self) -> None:
        check_order(self.ci95[0], self.median, self.ci95[1])

    @property
    def interval(self) -> Interval:
        """It as an interval."""
        return Interval(median=self.median, low=self.ci95[0], high=self.ci95[1])


def check_order(low: float, middle: float, high: float) -> None:
    """Check that an interval lies around its middle.

    Raises:
        ValueError: it does not.
    """
    if not low <= middle <= high:
        raise ValueError(f"{low:g}, {middle:g}, {high:g} are not in order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A simulated step."""

    step_ns: Ns
    ratio_to_single: RatioRange | None
    """None for `single` itself."""
    compute_ns: ByName[Ns]
    """By device."""
    transfer_ns: Ns
    """Time in which a copy is under way, summed over pairs of source and target."""
    transfer_count: Count
    """Copies per step, control signals included; a collective is one on each device."""
    transfer_bytes: Count | None
    """Of the tensors whose size is known; None if none is known."""
    exposed_ns: Ns
    """What the device that waits longest for copies waits, computing nothing."""
    exposed_by_device_ns: ByName[Ns]
    peak_memory_bytes: ByName[Count]
    """Peak of live bytes by device."""

    @classmethod
    def of(cls, schedule: Schedule, ratio: PredictedRatio | None) -> Prediction:
        """Return it as it is published."""
        return like(
            cls,
            schedule,
            ratio_to_single=ratio and like(RatioRange, ratio),
            exposed_by_device_ns=schedule.exposed_by_device,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAfterRuns:
    """A ratio to `single`, predicted when other splits had run and this one had not."""

    runs: Positive
    """Splits that had run."""
    ratio: NotNegative
    low: NotNegative
    """The range is one in which nine ratios in ten are meant to lie."""
    high: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """All copies from one device to another, per step."""

    source: Text
    target: Text
    count: Count
    bytes: Count | None
    """None if the size of any copy is unknown."""
    bytes_basis: SizeBasis | None
    time_ns: Ns
    """Time in which at least one of them was under way."""
    exposed_ns: Ns
    """Part of that time during which the target computed nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of comparing a candidate with the run of `single`."""

    steps: Positive
    variables: Count
    """Variables compared, slots of optimizers among them."""
    unverified: Rows[Text]
    """Variables in whose updates a mistake would not have shown."""
    largest_difference: NotNegative
    """Relative to the largest value of the same under `single`."""
    held_equal: bool
    """Whether random numbers, or statistics of the batch, were made the same for both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A step as it ran, without the profiler; what only a profile shows is None without one."""

    step_ns: Steps
    warmup_ns: Rows[Ns]
    """No part of the samples."""
    ratio_to_single: RatioInterval | None
    """Exactly 1 for `single` itself; None where no round is shared."""
    compute_ns: ByName[Ns] | None
    """By device, median of the profiled steps."""
    transfer_ns: Ns | None
    """Time in which a copy was under way, summed over pairs of source and target."""
    transfer_count: Count | None
    """None also if the profile does not show all of them."""
    transfer_bytes: Count | None
    """None also if the size of any copy is unknown, or not all were seen."""
    bytes_basis: SizeBasis | None
    """`profile` if all were measured, `shapes` if any follow from the shapes in the graph."""
    exposed_ns: Ns | None
    """What the device that waits longest for copies waits, computing nothing."""
    exposed_by_device_ns: ByName[Ns] | None
    unseen_copies: Rows[Text] | None
    """Copies that each step makes and the profile does not show."""
    transfers: Rows[Transfers] | None
    step_memory_bytes: ByName[Count] | None
    """What a step holds at its worst moment above what stands between steps, by device."""
    clock_uncertainty_ns: Ns | None
    """How far a device of another host may be from where it belongs in time."""
    profiler_overhead: Ratio | None
    """Median profiled step over median unprofiled step."""
    moved_ops: Rows[Text]
    """Ops that TensorFlow ran elsewhere than planned."""
    verification: Verification | None
    """None for `single` itself."""
    profile: Text | None
    """Folder of the TensorBoard profile run."""

    @classmethod
    def of(cls, candidate: found.Candidate) -> Measured | None:
        """Return it as it is published, None if no step was timed."""
        measurement = candidate.measured
        if measurement is None or not measurement.step_ns:
            return None
        verification = measurement.verification
        return like(
            cls,
            measurement,
            step_ns=Steps.of(measurement.step_ns),
            ratio_to_single=_ratio_to_single(candidate),
            **_profiled(measurement.profile),
            moved_ops=tuple(measurement.moved_ops),
            verification=verification
            and like(
                Verification, verification, largest_difference=verification.relative_difference
            ),
            profile=measurement.profile_run,
        )


def _ratio_to_single(candidate: found.Candidate) -> RatioInterval | None:
    if candidate.name == BASELINE:
        return RatioInterval(median=1.0, ci95=(1.0, 1.0))
    if candidate.comparison is None:
        return None
    ratio = candidate.comparison.ratio
    return RatioInterval(median=ratio.median, ci95=(ratio.low, ratio.high))


def _profiled(profile: taken.StepProfile | None) -> dict[str, Any]:
    """Return what of a measurement only a profile has."""
    other = {"step_ns", "warmup_ns", "ratio_to_single", "profiler_overhead"}
    other |= {"moved_ops", "verification", "profile"}
    names = [field.name for field in fields(Measured) if field.name not in other]
    if profile is None:
        return dict.fromkeys(names)
    others = {
        "bytes_basis": profile.size_basis,
        "exposed_by_device_ns": profile.exposed_by_device,
        "transfers": tuple(
            like(
                Transfers,
                total,
                bytes=total.size_bytes,
                bytes_basis=total.size_basis,
            )
            for total in profile.transfers
        ),
    }
    return {name: others[name] if name in others else getattr(profile, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a candidate has no result, or only a part of it."""

    kind: FailureKind
    message: Prose
    in_full: Text | None
    """The file beside this one that has all of it; None if there is no more to read."""


def failure_file(candidate: found.Candidate) -> str | None:
    """Return the file beside the reports that has a failure in full; None if no more is known."""
    failure = candidate.failure
    return f"failures/{candidate.name}.txt" if failure is not None and failure.in_full else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where a step goes on the device that computes most; it is idle for the rest."""

    device: str
    compute_ns: int
    copies_ns: int
    """What it waits for copies with nothing to compute."""
    idle_ns: int
    longest_wait_ns: int
    """What the device waits that waits longest for copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is shown of a step, measured or simulated.

    ``ratio`` is its time over that of `single`. ``parts`` are None without a profile, and where it
    breaks a law; so is the count of copies that were measured.
    """

    step_ns: int
    ratio: Interval | None
    transfer_count: int | None
    parts: Parts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A placement with its prediction and its measurement."""

    name: Text
    """Unique in the list."""
    family: Text
    """Rule that the placement was made by."""
    placement_file: Text | None
    """Relative to this file; None if the family gave no placement, or split the batch."""
    samples: Rows[Positive] | None
    """Of each replica, in the order of their devices; None if the batch is not split."""
    predicted: Prediction | None
    predicted_after_runs: RatioAfterRuns | None
    """Written down before it ran, if it did."""
    measured: Measured | None
    """None if no step was timed; where no candidate ran, `single` may have one."""
    failure: Failure | None
    broken_laws: Rows[Violation]
    """Nothing is concluded from its profile if there are any."""

    @classmethod
    def of(cls, candidate: found.Candidate) -> Candidate:
        """Return it as it is published."""
        predicted, failure = candidate.predicted, candidate.failure
        after = candidate.ratio_after_runs
        return like(
            cls,
            candidate,
            placement_file=f"placements/{candidate.name}.json" if candidate.by_layer else None,
            predicted=predicted and Prediction.of(predicted, candidate.predicted_ratio),
            predicted_after_runs=after and like(RatioAfterRuns, after),
            measured=Measured.of(candidate),
            failure=failure and like(Failure, failure, in_full=failure_file(candidate)),
        )

    def step(self, basis: str) -> Step | None:
        """Return its step by one basis; None where it has none, or it is not to be trusted."""
        if self.failure is not None:
            return None
        return self.measured_step if basis == "measured" else self.predicted_step

    @property
    def predicted_step(self) -> Step | None:
        """What is shown of its prediction."""
        predicted = self.predicted
        if predicted is None:
            return None
        waits_ns, ratio = predicted.exposed_by_device_ns, predicted.ratio_to_single
        parts = _parts(predicted.step_ns, predicted.compute_ns, waits_ns)
        return Step(
            step_ns=predicted.step_ns,
            ratio=None if ratio is None else ratio.interval,
            transfer_count=predicted.transfer_count,
            parts=None if self.broken_laws else parts,
        )

    @property
    def measured_step(self) -> Step | None:
        """What is shown of its measurement."""
        measured = self.measured
        if measured is None:
            return None
        parts, count, ratio = None, measured.transfer_count, measured.ratio_to_single
        compute_ns, waits_ns = measured.compute_ns, measured.exposed_by_device_ns
        if measured.profiler_overhead and compute_ns is not None and waits_ns is not None:
            profiled_ns = round(measured.step_ns.median * measured.profiler_overhead)
            parts = _parts(profiled_ns, compute_ns, waits_ns)
        return Step(
            step_ns=measured.step_ns.median,
            ratio=None if ratio is None else ratio.interval,
            transfer_count=None if self.broken_laws else count,
            parts=None if self.broken_laws else parts,
        )

    @property
    def is_unverified(self) -> bool:
        """Whether a mistake in some of its updates would not have shown."""
        found = None if self.measured is None else self.measured.verification
        return found is not None and bool(found.unverified)


def _parts(step_ns: int, compute_ns: Mapping[str, int], waits_ns: Mapping[str, int]) -> Parts:
    busiest = max(compute_ns, key=compute_ns.__getitem__, default="")
    computes_ns, copies_ns = compute_ns.get(busiest, 0), waits_ns.get(busiest, 0)
    return Parts(
        device=busiest,
        compute_ns=computes_ns,
        copies_ns=copies_ns,
        idle_ns=max(step_ns - computes_ns - copies_ns, 0),
        longest_wait_ns=max(waits_ns.values(), default=0),
    )
