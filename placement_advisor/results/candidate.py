"""A candidate of an analysis as it is published: its prediction, its measurement, why it failed.

Times are integer nanoseconds and sizes integer bytes, both per step. None means: not measured, not
known, or does not apply; it is never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.defaults import BASELINE
from placement_advisor.files import contract
from placement_advisor.measurement.measurement import FailureKind, Interval, SizeBasis, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis import analysis_result as found
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps that were timed, with the 95 % bootstrap interval of their median."""

    median: contract.Ns
    ci95: tuple[contract.Ns, contract.Ns]
    samples: contract.Filled[contract.Ns]

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

    ratio: contract.Ratio
    low: contract.Ratio
    high: contract.Ratio

    def __post_init__(self) -> None:
        check_order(self.low, self.ratio, self.high)

    @property
    def interval(self) -> Interval:
        """It as an interval."""
        return Interval(median=self.ratio, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """A ratio of step times within rounds, with an interval that holds at every look at them."""

    median: contract.Ratio
    ci95: tuple[contract.Ratio, contract.Ratio]

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

    step_ns: contract.Ns
    ratio_to_single: RatioRange | None
    """None for `single`."""
    compute_ns: contract.ByName[contract.Ns]
    transfer_ns: contract.Ns
    """Under way, summed over device pairs."""
    transfer_count: contract.Count
    """Control signals included."""
    transfer_bytes: contract.Count | None
    """Of tensors of known size."""
    exposed_ns: contract.Ns
    """Of the device that waits longest."""
    exposed_by_device_ns: contract.ByName[contract.Ns]
    peak_memory_bytes: contract.ByName[contract.Count]
    """By device."""

    @classmethod
    def of(cls, schedule: Schedule, ratio: PredictedRatio | None) -> Prediction:
        """Return it as it is published."""
        return contract.like(
            cls,
            schedule,
            ratio_to_single=ratio,
            exposed_by_device_ns=schedule.exposed_by_device,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAfterRuns:
    """A ratio to `single`, predicted when other splits had run and this one had not."""

    runs: contract.Positive
    """Other splits that had run."""
    ratio: contract.NotNegative
    low: contract.NotNegative
    """End of a 90 % range."""
    high: contract.NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """All copies from one device to another, per step."""

    source: contract.Text
    target: contract.Text
    count: contract.Count
    bytes: contract.Count | None
    """None if any is unknown."""
    bytes_basis: SizeBasis | None
    time_ns: contract.Ns
    """At least one is under way."""
    exposed_ns: contract.Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of comparing a candidate with the run of `single`."""

    steps: contract.Positive
    variables: contract.Count
    """Compared, with optimizer slots."""
    unverified: contract.Rows[contract.Text]
    """A mistake in them would not show."""
    largest_difference: contract.NotNegative
    """Relative to the largest value under `single`."""
    held_equal: bool
    """Randomness or batch statistics were made equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A step as it ran, without the profiler; what only a profile shows is None without one."""

    step_ns: Steps
    warmup_ns: contract.Rows[contract.Ns]
    ratio_to_single: RatioInterval | None
    """1 for `single`; None if they share no rounds."""
    compute_ns: contract.ByName[contract.Ns] | None
    """Of the median profiled step."""
    transfer_ns: contract.Ns | None
    """Under way, summed over device pairs."""
    transfer_count: contract.Count | None
    """None, too, if some were not seen."""
    transfer_bytes: contract.Count | None
    """None, too, if any is unknown."""
    bytes_basis: SizeBasis | None
    """`shapes`: some come from the graph."""
    exposed_ns: contract.Ns | None
    """Of the device that waits longest."""
    exposed_by_device_ns: contract.ByName[contract.Ns] | None
    unseen_copies: contract.Rows[contract.Text] | None
    """Not in the profile."""
    transfers: contract.Rows[Transfers] | None
    step_memory_bytes: contract.ByName[contract.Count] | None
    """Peak, without what stays between steps."""
    clock_uncertainty_ns: contract.Ns | None
    """Of the clocks of hosts."""
    profiler_overhead: contract.Ratio | None
    """Step with the profiler over step without."""
    moved_ops: contract.Rows[contract.Text]
    """Ops that ran elsewhere than planned."""
    verification: Verification | None
    """None for `single`."""
    profile: contract.Text | None
    """Its run in TensorBoard."""

    @classmethod
    def of(cls, candidate: found.Candidate) -> Measured | None:
        """Return it as it is published, None if no step was timed."""
        measurement = candidate.measured
        if measurement is None or not measurement.step_ns:
            return None
        verification, profile = measurement.verification, measurement.profile
        return contract.like(
            cls,
            measurement,
            profile,
            step_ns=Steps.of(measurement.step_ns),
            ratio_to_single=_ratio_to_single(candidate),
            bytes_basis=profile and profile.size_basis,
            exposed_by_device_ns=profile and profile.exposed_by_device,
            transfers=profile
            and [
                contract.like(Transfers, each, bytes=each.size_bytes, bytes_basis=each.size_basis)
                for each in profile.transfers
            ],
            verification=verification
            and contract.like(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a candidate has no result, or only a part of it."""

    kind: FailureKind
    message: contract.Prose
    in_full: contract.Text | None
    """File that has all of it."""


def failure_file(candidate: found.Candidate) -> str | None:
    """Return the file beside the reports that has a failure in full; None if no more is known."""
    failure = candidate.failure
    return f"failures/{candidate.name}.txt" if failure is not None and failure.in_full else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where a step goes on the device that computes most."""

    device: contract.Text
    compute_ns: contract.Ns
    copies_ns: contract.Ns
    """It waits for copies and computes nothing."""
    idle_ns: contract.Ns
    """The rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is shown of a step, measured or simulated.

    ``ratio`` is its time over that of `single`. ``parts`` are None without a profile, and where it
    breaks a law; so are ``longest_wait_ns``, what the device waits for copies that waits longest,
    and the count of copies that were measured.
    """

    step_ns: int
    ratio: Interval | None
    transfer_count: int | None
    parts: Parts | None
    longest_wait_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A placement with its prediction and its measurement."""

    name: contract.Text
    """Unique."""
    family: contract.Text
    """The rule that made it."""
    placement_file: contract.Text | None
    """Relative to this file; None for a batch split."""
    samples: contract.Rows[contract.Positive] | None
    """Of each replica, if the batch is split."""
    predicted: Prediction | None
    predicted_after_runs: RatioAfterRuns | None
    """Written before it ran."""
    measured: Measured | None
    """None if no step was timed."""
    failure: Failure | None
    broken_laws: contract.Rows[Violation]
    """If any, its profile is not used."""

    @classmethod
    def of(cls, candidate: found.Candidate) -> Candidate:
        """Return it as it is published."""
        predicted, failure = candidate.predicted, candidate.failure
        return contract.like(
            cls,
            candidate,
            placement_file=f"placements/{candidate.name}.json" if candidate.by_layer else None,
            predicted=predicted and Prediction.of(predicted, candidate.predicted_ratio),
            predicted_after_runs=candidate.ratio_after_runs,
            measured=Measured.of(candidate),
            failure=failure and contract.like(Failure, failure, in_full=failure_file(candidate)),
        )

    def step(self, basis: str) -> Step | None:
        """Return its step by one basis; None where it has none, or it is not to be trusted."""
        if self.failure is not None:
            return None
        return self.measured_step if basis == "measured" else self.predicted_step

    @property
    def predicted_step(self) -> Step | None:
        """What is shown of its prediction."""
        found = self.predicted
        if found is None:
            return None
        return self._step(found, found.step_ns, 1.0, found.transfer_count)

    @property
    def measured_step(self) -> Step | None:
        """What is shown of its measurement."""
        found = self.measured
        if found is None:
            return None
        count = None if self.broken_laws else found.transfer_count
        return self._step(found, found.step_ns.median, found.profiler_overhead, count)

    def _step(
        self,
        found: Prediction | Measured,
        step_ns: int,
        overhead: float | None,
        transfer_count: int | None,
    ) -> Step:
        ratio, parts, longest_wait_ns = found.ratio_to_single, None, None
        compute_ns, waits_ns = found.compute_ns, found.exposed_by_device_ns
        if not self.broken_laws and overhead and compute_ns is not None and waits_ns is not None:
            parts = _parts(round(step_ns * overhead), compute_ns, waits_ns)
            longest_wait_ns = max(waits_ns.values(), default=0)
        return Step(
            step_ns=step_ns,
            ratio=None if ratio is None else ratio.interval,
            transfer_count=transfer_count,
            parts=parts,
            longest_wait_ns=longest_wait_ns,
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
    )
