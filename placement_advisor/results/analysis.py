"""``analysis.json``: what one `advisor analyze` found out.

Times are integer nanoseconds and sizes integer bytes, both per step. None means: not measured, not
known, or does not apply; it is never 0. Left out: what is only in text for people, such as the
headline, and the timelines.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen
from pydantic import StringConstraints

from placement_advisor.analysis import analysis_result
from placement_advisor.analysis import analysis_result as found
from placement_advisor.defaults import AS_WRITTEN, BASELINE
from placement_advisor.files import contract
from placement_advisor.results.candidate import Candidate, Steps, check_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.cost.gpu.assumed_times import AssumedTimes
    from placement_advisor.measurement.measurement import InputTiming
    from placement_advisor.simulator import break_even as swept
    from placement_advisor.tf.training.trial import Bill

SCHEMA_VERSION = 2
# Files beside it, in the same folder.
ANALYSIS = "analysis.json"
HOW_TO_SPLIT = "how_to_split.py"
# What `-v` prints, and the end of what a script printed up to the step that was captured.
FULL_TEXT, SCRIPT_OUTPUT = "report.txt", "script-output.txt"

Basis = Literal["measured", "simulated"]
# Shares are sums of quotients.
_Part = Annotated[float, Ge(0.0), Le(1.000001)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for; None where nothing was, and the advisor chose."""

    name: contract.Text | None
    mode: Literal["train", "infer"] | None
    batch_size: contract.Positive | None
    outputs: contract.Rows[contract.Text]
    """What a frozen graph computes."""
    devices: contract.Positive
    hardware: contract.Text | None
    """Specification or cluster file to simulate."""
    costs: contract.Text | None
    """Profile with op times."""
    testbed: contract.Text | None
    hosts: contract.Text | None
    candidates: contract.Rows[contract.Text] | None
    ratios: contract.Rows[contract.NotNegative] | None
    """Of samples, by device."""
    effort: contract.NotNegative
    """A unit takes about a second."""
    seed: contract.Count
    steps: contract.Positive
    """Of each candidate in a round."""
    rounds: contract.Positive | None
    """None for as many as it takes."""
    refine: contract.Count
    """Candidates added after runs."""
    run: bool
    quick: bool

    @classmethod
    def of(cls, options: AnalyzeOptions) -> Options:
        """Return them as they are published."""
        return contract.like(
            cls,
            options,
            options.source,
            costs=None if options.costs is None else str(options.costs),
            testbed=options.testbed and options.testbed.value,
            hosts=options.hosts and options.hosts.words,
            candidates=options.candidates and tuple(options.candidates),
            ratios=options.ratios and tuple(options.ratios),
            effort=options.effort.units,
            seed=options.effort.seed,
        )

    def in_words(self) -> dict[str, str]:
        """Return each of them by its name."""
        return {field.name: _in_words(getattr(self, field.name)) for field in fields(self)}


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device."""

    name: contract.Text
    host: contract.Text | None
    """None on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a link: a tensor takes latency plus size over bandwidth."""

    source: contract.Text
    target: contract.Text
    latency_ns: contract.Ns
    bandwidth_bytes_per_s: contract.Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """Where candidates ran, or were simulated to run."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    kind: contract.Text
    """Such as `workers` or `gpus`."""
    stand_in: bool
    """CPU cores stand in for accelerators."""
    description: contract.Text
    not_run: contract.Text | None
    """Why no candidate ran."""
    host_link: Literal["tls", "direct"] | None
    """None on one machine."""
    devices: contract.Rows[Device]
    links: contract.Rows[Link]
    fingerprint: contract.Text
    """Times compare where it is equal."""

    @classmethod
    def of(cls, testbed: found.TestbedSummary) -> Testbed:
        """Return it as it is published."""
        cluster, host_of = testbed.cluster, testbed.host_of
        return contract.like(
            cls,
            testbed,
            host_link=testbed.link and testbed.link.value,
            devices=tuple(
                Device(name=device.name, host=host_of.get(device.name))
                for device in cluster.devices
            ),
            links=tuple(
                contract.like(Link, link, bandwidth_bytes_per_s=round(link.bandwidth_bytes_per_s))
                for link in cluster.links
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AsIs:
    """The user's step unmodified, with all of the machine."""

    step_ns: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Step time of `single` over that of a candidate: above 1 is faster."""

    estimate: contract.Ratio
    ci95: tuple[contract.NotNegative, contract.NotNegative]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer with its ground."""

    verdict: analysis_result.AdviceVerdict
    candidate: contract.Text | None
    """What the verdict is about."""
    speedup: Speedup | None
    basis: Basis
    applies_to: contract.Text
    """Devices for which it holds."""
    answer: contract.Prose
    """The verdict in a sentence."""
    caveat: contract.Prose | None
    """What it does not tell of this machine."""
    how: contract.Prose | None
    """The split, in a line."""
    deciding: Annotated[contract.Rows[contract.Prose], MaxLen(3)]
    """The reasons that decide."""
    reasons: contract.Rows[contract.Prose]
    """All, most important first."""
    others: contract.Rows[contract.Prose]
    """About other candidates."""
    next_run: analysis_result.NextRun | None

    @classmethod
    def of(cls, analysis: found.Analysis) -> Recommendation:
        """Return it as it is published."""
        told, how = analysis.recommendation, analysis.how
        speedup = told.speedup
        return contract.like(
            cls,
            told,
            speedup=speedup and Speedup(estimate=speedup.median, ci95=(speedup.low, speedup.high)),
            how=how_in_short(how)
            if how is not None and told.verdict in analysis_result.TO_SPLIT
            else None,
        )


def how_in_short(how: found.HowToSplit) -> str:
    """Return how to carry out a split in a line, and where all of it is if that is more."""
    if how.words_in_short == how.words:
        return how.words
    return f"{how.words_in_short} (by name: {HOW_TO_SPLIT})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSplit:
    """The fastest split if copies between devices took no time."""

    candidate: contract.Text
    """Or `searched for faster links`."""
    ratio: contract.NotNegative
    """To the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthPoint:
    """The best split at one bandwidth of the slowest link."""

    bytes_per_s: contract.Count
    candidate: contract.Text
    ratio: contract.NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """The best split at one latency of the slowest link."""

    ns: contract.Ns
    candidate: contract.Text
    ratio: contract.NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """The best split at one batch."""

    samples: contract.Count
    candidate: contract.Text
    ratio: contract.NotNegative


# A split wins from some value on; at the value that is worst for splits already; at none.
Outcome = Literal["crosses", "throughout", "nowhere"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthSweep:
    """What faster and slower links would do, named by the slowest of them."""

    outcome: Outcome
    here_bytes_per_s: contract.Count
    wins_from_bytes_per_s: contract.Count | None
    """The least that wins, if `crosses`."""
    loses_at_bytes_per_s: contract.Count | None
    """The next point, where no split wins."""
    changes: contract.Count
    """How often winning turns into losing or back."""
    points: contract.Filled[BandwidthPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySweep:
    """What lower and higher latencies of links would do, named by the slowest of them."""

    outcome: Outcome
    here_ns: contract.Ns
    wins_from_ns: contract.Ns | None
    """The largest that wins, if `crosses`."""
    loses_at_ns: contract.Ns | None
    changes: contract.Count
    points: contract.Filled[LatencyPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep:
    """What smaller and larger batches would do."""

    outcome: Outcome
    here_samples: contract.Count
    wins_from_samples: contract.Count | None
    """The smallest that wins, if `crosses`."""
    loses_at_samples: contract.Count | None
    changes: contract.Count
    points: contract.Filled[BatchPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """What would have to change for a split to win, simulated."""

    baseline: contract.Text
    worthwhile_ratio: contract.Ratio
    """A split wins below it."""
    corrections: contract.ByName[contract.Ratio]
    """Measured over predicted ratio, by split."""
    free_copies: BestSplit
    bandwidth: BandwidthSweep | None
    """None if it is unknown."""
    latency: LatencySweep | None
    """None if links have none."""
    batch: BatchSweep | None
    """None if inputs have none."""

    @classmethod
    def of(cls, sweep: swept.BreakEven) -> BreakEven:
        """Return it as it is published."""
        free = sweep.free_copies
        return contract.like(
            cls,
            sweep,
            free_copies=BestSplit(candidate=free.split, ratio=free.ratio),
            bandwidth=_sweep(BandwidthSweep, BandwidthPoint, "bytes_per_s", sweep.bandwidth),
            latency=_sweep(LatencySweep, LatencyPoint, "ns", sweep.latency),
            batch=_sweep(BatchSweep, BatchPoint, "samples", sweep.batch),
        )


def _sweep(kind: Any, point: Any, unit: str, sweep: swept.Sweep | None) -> Any:
    if sweep is None:
        return None
    values = {
        f"here_{unit}": sweep.here.value,
        f"wins_from_{unit}": sweep.wins_from and sweep.wins_from.value,
        f"loses_at_{unit}": sweep.loses_at and sweep.loses_at.value,
    }
    return kind(
        outcome=sweep.outcome.value,
        **values,
        changes=sweep.changes,
        points=tuple(
            point(**{unit: each.value}, candidate=each.best.split, ratio=each.best.ratio)
            for each in sweep.points
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """The user's dataset timed alone, with no step in between."""

    batch_ns: contract.Filled[contract.Ns]
    """Without the warm-up."""
    samples_per_s: contract.NotNegative | None
    transformations: contract.Rows[contract.Text]
    """The source comes first."""

    @classmethod
    def of(cls, timing: InputTiming, batch_size: int | None) -> Input:
        """Return it as it is published."""
        return cls(
            batch_ns=timing.batch_ns,
            samples_per_s=None if batch_size is None else timing.samples_per_s(batch_size),
            transformations=timing.transformations,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """A step on some devices: at the same global batch (strong), or the same of each (weak)."""

    name: Literal["single", "strong scaling", "weak scaling"]
    candidate: contract.Text
    devices: contract.Positive
    batch: contract.Positive
    """Samples on all devices."""
    predicted_ns: contract.Ns | None
    measured_ns: contract.Ns | None
    """Median; None for weak scaling."""


def scaling(candidates: Sequence[found.Candidate]) -> tuple[ScalingRow, ...]:
    """Return the single device, strong and weak scaling; nothing where the batch was not split."""
    alone = next((c for c in candidates if c.name == BASELINE), None)
    splits = [c for c in candidates if c.samples is not None]
    if alone is None or not splits:
        return ()
    whole = sum(splits[0].samples or ())

    def strong(name: Any, devices: int, candidate: found.Candidate) -> ScalingRow:
        step_ns = candidate.measured.step_ns if candidate.measured else ()
        return ScalingRow(
            name=name,
            candidate=candidate.name,
            devices=devices,
            batch=whole,
            predicted_ns=candidate.predicted.step_ns if candidate.predicted else None,
            measured_ns=round(median(step_ns)) if step_ns else None,
        )

    def weak(row: ScalingRow, candidate: found.Candidate) -> ScalingRow:
        batch, step_ns = len(candidate.samples or ()) * whole, candidate.weak_predicted_ns
        return replace(
            row, name="weak scaling", batch=batch, predicted_ns=step_ns, measured_ns=None
        )

    rows = [strong("strong scaling", _devices(c), c) for c in splits]
    return (strong(BASELINE, 1, alone), *rows, *map(weak, rows, splits))


def _devices(candidate: found.Candidate) -> int:
    placement = candidate.placement
    return len(set(placement.device_of.values())) if placement is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSteps:
    """Training steps on one GPU that others published, and how far off predictions of them are."""

    count: contract.Positive
    mean_error: contract.NotNegative
    worst_error: contract.NotNegative


# Source: docs/explanation/gpus.md, which names the commands.
PUBLISHED_STEPS = PublishedSteps(count=9, mean_error=0.14, worst_error=0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """Kernels of a kind that was measured."""

    family: Literal["linear", "bmm", "conv", "add", "mul", "relu", "tanh", "gelu", "softmax", "ln"]
    basis: Literal["fitted", "transferred"]
    mean_error: Annotated[float, Ge(0.0), Le(100.0)]
    """As a share."""
    share: _Part
    """Of op time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTimes:
    """What times of ops rest on, on one sort of GPU that is not here."""

    gpu: contract.Text
    """Name in the datasheet."""
    launch_share: _Part
    assumed_share: _Part
    """Kernels that were never measured."""
    roofline_share: _Part
    """From peak and bandwidth alone."""
    families: contract.Rows[KernelShare]
    """Most time first."""

    @classmethod
    def of(cls, times: AssumedTimes) -> GpuTimes:
        """Return it as it is published."""
        families = times.families
        return contract.like(
            cls,
            times,
            families=tuple(
                contract.like(KernelShare, each, basis=each.basis.value, mean_error=each.error)
                for each in families
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedErrors:
    """How far off predictions for GPUs that are not here may be."""

    published_steps: PublishedSteps
    gpus: contract.Filled[GpuTimes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where a finding applies: what is known of it."""

    layer: contract.Text | None = None
    op: contract.Text | None = None
    tensor: contract.Text | None = None
    """As ``op:port``."""
    device: contract.Text | None = None
    candidate: contract.Text | None = None
    file: contract.Text | None = None
    line: contract.Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found; what is known of a saving is there together, or absent."""

    code: Annotated[str, StringConstraints(pattern=r"^PA[0-9]{3}$")]
    """For `advisor explain`."""
    name: contract.Text
    finding: contract.Prose
    action: contract.Prose
    where: Where
    hypothetical: bool
    """About a split that is neither in use nor advised."""
    saving_ns: contract.Ns | None = None
    """Per step."""
    saving_step_ns: contract.Ns | None = None
    """The step that it is saved from."""
    saving_low_ns: contract.Ns | None = None
    saving_high_ns: contract.Ns | None = None
    saving_basis: Literal["measured", "simulated", "extrapolated"] | None = None
    """`extrapolated`: the advised batch did not run."""
    command: contract.Prose | None = None
    """Tries out the advice."""

    def __post_init__(self) -> None:
        _ = self.saving

    @property
    def saving(self) -> analysis_result.Saving | None:
        """What acting on it saves; None if that is not known."""
        values = (
            self.saving_step_ns,
            self.saving_ns,
            self.saving_low_ns,
            self.saving_high_ns,
            self.saving_basis,
        )
        if values == (None,) * len(values):
            return None
        step_ns, saving_ns, low_ns, high_ns, basis = values
        if step_ns is None or saving_ns is None or low_ns is None or high_ns is None:
            raise ValueError("a part of its saving is missing")
        return analysis_result.Saving(
            step_ns=step_ns,
            saving_ns=saving_ns,
            low_ns=low_ns,
            high_ns=high_ns,
            basis=basis or "simulated",
        )

    @classmethod
    def of(cls, finding: found.Finding, options: AnalyzeOptions) -> Finding:
        """Return it as it is published."""
        saving, batch = finding.saving, finding.batch_size
        return contract.like(
            cls,
            finding,
            where=Where(**finding.where),  # type: ignore[arg-type]
            hypothetical=finding.is_hypothetical,
            saving_ns=saving and saving.saving_ns,
            saving_step_ns=saving and saving.step_ns,
            saving_low_ns=saving and saving.low_ns,
            saving_high_ns=saving and saving.high_ns,
            saving_basis=saving and saving.basis,
            command=batch and options.command(batch_size=batch),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Wall time by stage, from the first to the last; None for a stage that did not happen."""

    import_: contract.Ns | None
    """Checks, and the import of TensorFlow."""
    load: contract.Ns | None
    trace: contract.Ns | None
    split: contract.Ns | None
    """To trace shares of the batch."""
    calibrate: contract.Ns | None
    """Starts the testbed, too."""
    measure: contract.Ns | None
    """Times of ops on one device."""
    search: contract.Ns | None
    simulate: contract.Ns | None
    prepare: contract.Ns | None
    """To place and verify."""
    run: contract.Ns | None
    """Rounds, other batches, the dataset alone."""
    profile: contract.Ns | None
    conclude: contract.Ns | None
    report: contract.Ns | None
    total: contract.Ns

    @classmethod
    def of(cls, timings_ns: Mapping[str, int]) -> Timings:
        """Return them as they are published."""
        stages = [field.name for field in fields(cls)][:-1]
        return cls(
            **{stage: timings_ns.get(stage.rstrip("_")) for stage in stages},
            total=sum(timings_ns.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The split and the script's own step by turns, on the data of a training."""

    steps: contract.Positive
    """Of either."""
    placed_step_ns: contract.Ns
    """Median."""
    own_step_ns: contract.Ns
    speedup: contract.Ratio
    """Own step over split."""
    ci95: tuple[contract.Ratio, contract.Ratio] | None
    """None after too few turns."""

    def __post_init__(self) -> None:
        if self.ci95 is not None:
            check_order(self.ci95[0], self.speedup, self.ci95[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What `advisor run` has trained by an analysis, the last time."""

    candidate: contract.Text
    why_not: contract.Prose | None
    """Why the script trained unchanged."""
    ready_s: contract.NotNegative
    placed_steps: contract.Count
    own_steps: contract.Count
    """With batches that the split could not take."""
    trial: Trial | None

    @classmethod
    def of(cls, bill: Bill) -> Training:
        """Return it as it is published."""
        trial, within = bill.trial, bill.trial and bill.trial.interval
        return contract.like(
            cls,
            bill,
            candidate=bill.label,
            own_steps=bill.own_steps + bill.other_steps,
            trial=trial
            and contract.like(
                Trial,
                trial,
                steps=trial.counted,
                placed_step_ns=round(trial.placed_ns),
                own_step_ns=round(trial.own_ns),
                ci95=within and (within.low, within.high),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What one `advisor analyze` found out."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Annotated[int, Ge(1), Le(SCHEMA_VERSION)]
    advisor_version: contract.Text
    tensorflow_version: contract.Text
    options: Options
    model: analysis_result.Model
    testbed: Testbed
    sessions: contract.Count
    """In how many analyses rounds ran (`--resume`)."""
    as_is: AsIs | None
    """None if it did not run."""
    candidates: contract.Rows[Candidate]
    """In the order proposed."""
    recommendation: Recommendation
    bound: analysis_result.Bound | None
    """None without predictions."""
    break_even: BreakEven | None
    """None without a split, or without `single`."""
    input: Input | None
    """None unless a dataset was timed."""
    scaling: contract.Rows[ScalingRow]
    """Empty unless the batch is split."""
    expected_errors: ExpectedErrors | None
    """None unless times of GPUs are assumed."""
    findings: contract.Rows[Finding]
    """Most valuable first."""
    warnings: contract.Rows[contract.Prose]
    timings_ns: Timings
    training: Training | None
    """None before `advisor run`."""

    @classmethod
    def of(cls, analysis: found.Analysis) -> Analysis:
        """Return it as it is published."""
        timing, bound, even = analysis.input_timing, analysis.bound, analysis.break_even
        gpus = tuple(map(GpuTimes.of, analysis.assumed_times))
        return contract.like(
            cls,
            analysis,
            schema_version=SCHEMA_VERSION,
            options=Options.of(analysis.options),
            testbed=Testbed.of(analysis.testbed),
            as_is=AsIs(step_ns=Steps.of(analysis.as_is)) if analysis.as_is else None,
            candidates=tuple(map(Candidate.of, analysis.candidates)),
            recommendation=Recommendation.of(analysis),
            bound=bound and contract.like(analysis_result.Bound, bound),
            break_even=even and BreakEven.of(even),
            input=timing and Input.of(timing, analysis.model.batch_size),
            scaling=scaling(analysis.candidates),
            expected_errors=ExpectedErrors(published_steps=PUBLISHED_STEPS, gpus=gpus)
            if gpus
            else None,
            findings=tuple(Finding.of(each, analysis.options) for each in analysis.findings),
            timings_ns=Timings.of(analysis.timings_ns),
            training=None,
        )

    @property
    def shown_findings(self) -> tuple[Finding, ...]:
        """Those about what the user runs or is told to run."""
        return tuple(each for each in self.findings if not each.hypothetical)

    @property
    def trains_with(self) -> str | None:
        """The candidate that the script is to train with; None to train as it is.

        `single` where one device is faster than the split that the script has.
        """
        verdict, candidate = self.recommendation.verdict, self.recommendation.candidate
        if verdict in analysis_result.TO_SPLIT:
            return None if candidate == AS_WRITTEN else candidate
        is_split = any(each.name == AS_WRITTEN and each.failure is None for each in self.candidates)
        return (
            BASELINE if is_split and verdict is analysis_result.AdviceVerdict.STAY_SINGLE else None
        )
