"""What `advisor doctor --run` answers: what a known step shows of two devices."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from placement_advisor import __version__
from placement_advisor.analysis.acceptance.finding import Outcome
from placement_advisor.analysis.acceptance.judge import findings_of, is_trusted
from placement_advisor.analysis.acceptance.judge_copies import seen_copies
from placement_advisor.files.contract import STRICT, ByName, Count, Ns, Rows, Text, like
from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.tf.acceptance.known_step import End, copies_from

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.acceptance import observed
    from placement_advisor.measurement.measurement import StepProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, and what came of it."""

    name: Text
    """What was looked at."""
    outcome: Outcome
    """As it must be, not so, or not to be told here."""
    finding: Text
    """The figures in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What one device sends the other, as planned and as seen."""

    source: Text
    """Device that sends."""
    planned_count: Count
    """Copies that the step must make."""
    planned_bytes: Count
    """Bytes that these must have."""
    count: Count | None
    """Copies in the profile; None if it cannot be read."""
    bytes: Count | None
    """Their bytes; None if not known."""
    bytes_basis: SizeBasis | None
    """Where the bytes come from: the profile, or shapes in the graph; None if not known."""
    over_host: bool | None
    """Whether they go over the host instead of from device to device; None if the profile cannot be
    read.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """What a datasheet promises of products of matrices."""

    device: Text
    """Device that computes them."""
    products: Rows[Text]
    """Ops of equal work, of which the fastest counts."""
    time_ns: Ns
    """What each must take."""
    within: float
    """Factor, either way, beyond which the profile is off."""
    source: Text
    """Where that comes from, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two devices that ran the step."""

    near: Text
    """Device of the ops that are called near."""
    far: Text
    """Device of the ops that are called far."""
    findings: Rows[Finding]
    """What was held against what it must be, in a fixed order."""
    step_ns: Ns | None
    """Median of steps without the profiler; None if they failed."""
    profiled_steps: Count
    """How many steps were run under the profiler."""
    profiled_step_ns: Ns | None
    """Median of the steps in the profile; None if it cannot be read."""
    copies: Rows[Copies]
    """What leaves each of the two for the other one, per step: near first."""
    op_ns: ByName[Ns] | None
    """Time of each op in the profile, median over steps; None if it cannot be read."""
    expected_times: Rows[ExpectedTime]
    """What products must take; empty if nothing is known of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a known step showed of the devices here."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that looked."""
    tensorflow_version: Text
    """Version of TensorFlow that ran the step."""
    trusted: bool
    """Whether nothing is off; the exit code is 1 if not."""
    untried_on_gpus: bool
    """Whether devices are GPUs, on which none of this has been tried."""
    testbed: Literal["gpus", "workers", "hosts"]
    """What the step ran on."""
    description: Text
    """The devices in words."""
    bundle: Text
    """File of the bundle, as it was named; in the bundle itself without its folder."""
    pairs: Rows[Pair]
    """Each two devices on which the step ran."""

    @classmethod
    def of(cls, acceptance: observed.Acceptance, bundle: Path) -> Acceptance:
        """Return it as it is published."""
        return like(
            cls,
            acceptance,
            schema_version=1,
            advisor_version=__version__,
            trusted=is_trusted(acceptance),
            untried_on_gpus=acceptance.has_gpus,
            bundle=str(bundle),
            pairs=tuple(map(_pair, acceptance.pairs)),
        )


def _pair(pair: observed.PairRun) -> Pair:
    profile = pair.profile
    return like(
        Pair,
        pair,
        near=pair.device_at[End.NEAR],
        far=pair.device_at[End.FAR],
        findings=tuple(like(Finding, each) for each in findings_of(pair)),
        profiled_step_ns=None if profile is None else round(median(profile.step_ns)),
        copies=tuple(_copies(pair, profile, source) for source in End),
        op_ns=None if profile is None else dict(profile.op_ns),
        expected_times=tuple(
            like(ExpectedTime, each, products=tuple(each.products)) for each in pair.expected
        ),
    )


def _copies(pair: observed.PairRun, profile: StepProfile | None, source: End) -> Copies:
    planned = copies_from(source)
    seen = None if profile is None else seen_copies(pair, profile, source)
    return Copies(
        source=pair.device_at[source],
        planned_count=len(planned),
        planned_bytes=sum(copy.size_bytes for copy in planned),
        count=None if seen is None else seen.count,
        bytes=None if seen is None else seen.size_bytes,
        bytes_basis=None if seen is None else seen.size_basis,
        over_host=None if seen is None else seen.over_host,
    )
