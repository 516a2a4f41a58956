"""What the screen and `diff` know of a finished analysis.

What only programs want (samples, sweeps, copies by direction) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import TO_SPLIT, AdviceVerdict
from placement_advisor.defaults import AS_WRITTEN, BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.analysis_result import CapturedStep, NextRun, Saving
    from placement_advisor.cost.gpu.time_basis import AssumedTimes
    from placement_advisor.measurement.failure import FailureKind
    from placement_advisor.measurement.measurement import Interval

# Of `analysis.json`.
SCHEMA_VERSION = 1
# What stands for an option that was taken.
YES = "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where a step goes, simulated or profiled, on the device that computes most.

    It computes, waits for copies with nothing to compute, and is idle for the rest.
    ``longest_wait_ns`` is what the device waits that waits longest for copies.
    """

    device: str
    compute_ns: int
    copies_ns: int
    idle_ns: int
    longest_wait_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A step of a candidate, measured or simulated.

    ``ratio`` is its time over that of `single`, with its interval, or the range that it has if
    costs are as wrong as they may be; None where there was nothing to compare with. ``parts`` is
    None without a profile, and where it breaks a law; so are copies that were measured.
    """

    step_ns: int
    ratio: Interval | None
    transfer_count: int | None
    parts: Parts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRecord:
    """A candidate with what was simulated and measured, and why it has no result, if so.

    ``why`` says that in a sentence, ``in_full`` is the file that has more of it, None if none has.
    ``is_unverified``: a mistake in some of its updates would not have shown. ``placement_file`` is
    its placement, ``samples`` are those of each device where it splits the batch.
    """

    name: str
    family: str
    placement_file: str | None
    samples: tuple[int, ...] | None
    predicted: StepRecord | None
    measured: StepRecord | None
    failure: FailureKind | None
    is_unverified: bool
    why: str = ""
    in_full: str | None = None

    def step(self, basis: str) -> StepRecord | None:
        """Return its step by one basis; None where it has none, or it is not to be trusted."""
        if self.failure is not None:
            return None
        return self.measured if basis == "measured" else self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord:
    """A finding about what the user runs or is told to run.

    ``command`` tries its advice, None if none does.
    """

    code: str
    name: str
    action: str
    saving: Saving | None
    command: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """What was analysed: ``chosen``, in words; ``left_out`` is what of the user's program was not.

    ``captured`` is None unless a script ran. ``is_made_up``: its batch is none of the user's.
    """

    path: str
    mode: str
    chosen: str
    captured: CapturedStep | None
    batch_size: int | None
    is_made_up: bool
    ops: int
    parameter_bytes: int
    graph_fingerprint: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """What a tensor takes from one device to another."""

    latency_ns: int
    bandwidth_bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedRecord:
    """Where candidates ran, or why they did not; see `TestbedSummary`."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    kind: str
    stand_in: bool
    description: str
    not_run: str | None
    devices: tuple[str, ...]
    links: Mapping[str, LinkRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """The answer with its ground; see `Recommendation`. ``how`` is the split to make, if any."""

    verdict: AdviceVerdict
    candidate: str | None
    basis: str
    answer: str
    caveat: str | None
    how: str | None
    deciding: tuple[str, ...]
    next_run: NextRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """Both steps by turns, on the data of a training.

    ``speedup`` is the script's own step over the split one, ``interval`` None after few turns.
    """

    placed_step_ns: int
    own_step_ns: int
    speedup: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """What `advisor run` has trained by an analysis, the last time; see `Bill`."""

    candidate: str
    why_not: str | None
    placed_steps: int
    own_steps: int
    trial: TrialRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRecord:
    """A finished analysis.

    ``options`` are what was asked for, in words, by name; ``warnings`` says how many there are.
    ``assumed_times`` are those of `Analysis`. ``training`` is None if nothing was trained by it.
    """

    advisor_version: str
    tensorflow_version: str
    options: Mapping[str, str]
    model: ModelRecord
    testbed: TestbedRecord
    as_is_ns: int | None
    candidates: tuple[CandidateRecord, ...]
    answer: AnswerRecord
    findings: tuple[FindingRecord, ...]
    warnings: int
    assumed_times: tuple[AssumedTimes, ...]
    training: TrainingRecord | None

    @property
    def trains_with(self) -> str | None:
        """The candidate that the script is to train with; None to train as it is.

        `single` where one device is faster than the split that the script has.
        """
        verdict, candidate = self.answer.verdict, self.answer.candidate
        if verdict in TO_SPLIT:
            return None if candidate == AS_WRITTEN else candidate
        is_split = any(each.name == AS_WRITTEN and each.failure is None for each in self.candidates)
        return BASELINE if is_split and verdict is AdviceVerdict.STAY_SINGLE else None

    @property
    def is_quick(self) -> bool:
        """Whether it is text alone, with nothing to look at."""
        return self.options.get("quick") == YES
