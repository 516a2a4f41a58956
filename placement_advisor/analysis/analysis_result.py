"""The result of one analysis, as one frozen value that reports turn into text and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Literal

from placement_advisor.files.contract import ByName, Count, Ns, Positive, Prose, Rows, Share, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.cost.gpu.assumed_times import AssumedTimes
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.testbed_plan import HostLink
    from placement_advisor.measurement import measurement as measurements
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio


# The graph that the bound is about, in the folder of the analysis.
GRAPH = "graph.json.gz"
# The basis of a saving at a batch that did not run, by measurements at others.
EXTRAPOLATED = "extrapolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One placement with what was predicted and what was measured.

    ``comparison`` is None for the single device itself and where nothing was measured.
    ``predicted_ratio`` is None for the single device and where nothing was predicted,
    ``ratio_after_runs`` that as predicted when others had run and it had not, None if it was not.
    ``by_layer`` is `Placement.by_layer`, in graph order, for reports that do not see the graph;
    ``torn_layers`` is how many of them have ops on other devices as well. A split of the batch has
    no layers, but the ``samples`` of each replica; ``weak_predicted_ns`` is its step with the whole
    batch on every device. ``broken_laws`` are those that its prediction or measurement breaks:
    nothing is concluded from its profile then.
    """

    name: str
    family: str
    rationale: str
    placement: Placement | None = None
    predicted: Schedule | None = None
    measured: measurements.Measurement | None = None
    comparison: measurements.Comparison | None = None
    failure: measurements.CandidateFailure | None = None
    by_layer: Mapping[str, str] | None = None
    torn_layers: int = 0
    predicted_ratio: PredictedRatio | None = None
    ratio_after_runs: PredictedRatio | None = None
    samples: tuple[int, ...] | None = None
    broken_laws: tuple[measurements.Violation, ...] = ()
    weak_predicted_ns: int | None = None

    @property
    def step_ns(self) -> float | None:
        """The median of its steps as measured, None without any."""
        steps_ns = self.measured.step_ns if self.measured is not None else ()
        return median(steps_ns) if steps_ns else None

    @property
    def profile(self) -> measurements.StepProfile | None:
        """The profile of its steps; None without one, and where nothing is concluded from it."""
        return self.measured.profile if self.measured is not None and not self.broken_laws else None

    @property
    def is_unverified(self) -> bool:
        """Whether it ran, and a mistake in some of its updates would not have shown."""
        found = self.measured.verification if self.measured is not None else None
        return found is not None and bool(found.unverified)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStep:
    """The step of a script that ran."""

    call: Text
    """What the script calls: `model.fit`, `Session.run` or a function."""
    step: Text
    """What ``--step`` calls it."""
    is_replica: bool
    """It is one replica of the script's own strategy."""
    run_command: Prose
    """The command that trains by this analysis, secrets left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What was analysed."""

    path: Text
    mode: Literal["train", "infer"]
    chosen: Prose
    """What was traced and feeds it."""
    captured: CapturedStep | None
    """None if no script ran."""
    batch_size: Positive | None
    """None if inputs have none."""
    batch_is_made_up: bool
    """The batch is not the user's."""
    ops: Count
    edges: Count
    """Control edges included."""
    parameter_bytes: Count
    edge_bytes_known_share: Share
    """Of edges that carry data."""
    graph_fingerprint: Text
    left_out: Rows[Prose]
    """What the step leaves out, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedSummary:
    """Where candidates ran, or why they did not.

    ``stand_in`` is True where the devices are CPU cores that stand in for accelerators.
    ``not_run`` says why nothing ran, None if something did. ``host_of`` has the host of each device
    where there are several hosts, which reach one another by ``link``.
    """

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    kind: str
    stand_in: bool
    description: str
    cluster: Cluster
    fingerprint: str
    not_run: str | None
    host_of: Mapping[str, str] = field(default_factory=dict)
    link: HostLink | None = None


class AdviceVerdict(StrEnum):
    """The answer."""

    STAY_SINGLE = "stay-single"
    SPLIT = "split"
    CANNOT_TELL = "cannot-tell"
    CANNOT_FIT = "cannot-fit"


# Those that tell to make the split that they name.
TO_SPLIT = (AdviceVerdict.SPLIT, AdviceVerdict.CANNOT_FIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """The same command once more, changed so that it would tell more."""

    change: Text
    """Such as ``with --resume --rounds 60`` or ``without --no-run``."""
    takes_ns: Ns
    """About how long it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answer with its ground.

    ``speedup`` is single over candidate (above 1 is faster), with its interval where measured.
    ``applies_to`` says for which devices the answer holds. ``answer`` is the verdict in a sentence
    that leaves them out, ``headline`` in one with all of it. ``caveat`` says what the answer
    does not tell of this machine, None where devices are real. ``deciding`` are the few reasons
    that decide, in short; ``reasons`` are all of them. ``others`` tells what was seen of the
    candidates that the answer is not about. ``next_run`` is None where no run is known that would
    tell more.
    """

    verdict: AdviceVerdict
    candidate: str | None
    speedup: measurements.Interval | None
    basis: str
    applies_to: str
    answer: str
    headline: str
    caveat: str | None
    deciding: tuple[str, ...]
    reasons: tuple[str, ...]
    others: tuple[str, ...]
    next_run: NextRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no placement of the model's ops can beat, under the costs of the prediction."""

    step_ns: Ns
    """The least of `split_ns` and `alone_ns`."""
    split_ns: Ns
    """On several devices."""
    alone_ns: ByName[Ns]
    """By device or host."""
    single_ns: Ns
    most_to_gain: Share
    """The most that any placement can save."""
    proves_single: bool
    """Too little for a split to pay."""
    most_to_gain_if_wrong: Share | None
    """The same with costs at their worst."""
    proves_single_if_wrong: bool
    costs_from: Literal["measured", "recorded", "assumed"]
    """`recorded`: from a profile."""
    reason: Prose
    """The strongest argument for `split_ns`."""
    graph_file: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainBound(Bound):
    """A bound, and how wrong the costs may be that it rests on.

    Splits of the batch or of a tensor make other ops, which it does not cover. ``proves_single``
    holds under the costs of the prediction, ``proves_single_if_wrong`` even if these are as wrong
    as they may be; what is known of that is None where not even the costs as they are prove it.
    """

    doubt: CostUncertainty


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToSplit:
    """How to carry out one candidate.

    ``words`` say it by layers, ``words_in_short`` in a line. ``call`` is the Python code that does
    it with this package, ``listing`` without, None if that is not written.
    """

    candidate: str
    words: str
    words_in_short: str
    call: str
    listing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What acting on a finding saves of a step, between its least and its most.

    ``step_ns`` is that step, as long as it was where the saving is known from: the share is what
    holds in another run. ``basis`` says where it comes from: simulated or measured. What may save
    nothing is none.

    Raises:
        ValueError: its least is not positive, it lies outside of its ends, or is more than a step.
    """

    step_ns: int
    saving_ns: int
    low_ns: int
    high_ns: int
    basis: str = "simulated"

    def __post_init__(self) -> None:
        if not 0 < self.low_ns <= self.saving_ns <= self.high_ns <= self.step_ns:
            raise ValueError(f"{self} is no saving")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to act on, found by one rule.

    ``code`` and ``name`` are the rule's, which fills them in. ``saving`` is None where it is not
    known that acting on it saves something. ``batch_size`` is the batch with which the same command
    tries the advice, None if it does not.
    ``is_hypothetical``: it is about a split that the user neither has nor is told to make. Such a
    finding has no rank, and what is shown of it no saving (`findings.rules.find_all`).
    """

    code: str = ""
    name: str = ""
    finding: str
    action: str
    where: Mapping[str, str | int]
    saving: Saving | None = None
    is_hypothetical: bool = False
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Analysis:
    """Everything that one `advisor analyze` found out. ``timings_ns`` is wall time by stage.

    ``title`` is the name of the model, which reports have at their head.

    ``break_even`` is None where there is no split, or no single device, to compare with;
    ``input_timing`` where the model file has no dataset, or it was not timed.
    ``bound`` is None where nothing was predicted.
    ``how`` is about the candidate that the recommendation names, None if it names none.
    ``assumed_times`` is what times of ops rest on, on GPUs that are not here; none if others were
    recorded there. ``sessions`` is in how many analyses rounds ran, each resuming the one before.
    """

    advisor_version: str
    tensorflow_version: str
    options: AnalyzeOptions
    title: str
    model: Model
    testbed: TestbedSummary
    as_is: tuple[int, ...] | None
    candidates: tuple[Candidate, ...]
    recommendation: Recommendation
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    timings_ns: Mapping[str, int]
    bound: UncertainBound | None = None
    break_even: BreakEven | None = None
    input_timing: measurements.InputTiming | None = None
    how: HowToSplit | None = None
    assumed_times: tuple[AssumedTimes, ...] = ()
    sessions: int = 0

    @property
    def verdict(self) -> AdviceVerdict:
        """The answer in a word."""
        return self.recommendation.verdict

    def __repr__(self) -> str:
        """Return the answer and what it is about: schedules of all candidates are a book."""
        model = self.model
        return (
            f"<Analysis of {self.title} ({model.mode}, batch {model.batch_size}, {model.ops} ops)\n"
            f" {self.verdict}: {self.recommendation.headline}\n"
            f" {len(self.candidates)} candidates, {len(self.findings)} findings>"
        )
