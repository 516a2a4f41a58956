"""What `advisor doctor --run` answers: what a known step shows of the devices here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from placement_advisor import __version__
from placement_advisor.analysis.acceptance import CheckOutcome
from placement_advisor.files.contract import STRICT, Rows, Text, like

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis import acceptance as seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, and what came of it."""

    name: Text
    """What was looked at."""
    outcome: CheckOutcome
    """As it must be, not so, or not to be told here."""
    finding: Text
    """The figures in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two devices that ran the step."""

    near: Text
    """Device of the ops that are called near."""
    far: Text
    """Device of the ops that are called far."""
    findings: Rows[Finding]
    """What was held against what it must be, in a fixed order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a known step showed of the devices here."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(2), Le(2)]
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
    def of(cls, acceptance: seen.Acceptance, bundle: Path) -> Acceptance:
        """Return it as it is published."""
        pairs = tuple(
            like(Pair, pair, findings=tuple(like(Finding, each) for each in pair.findings))
            for pair in acceptance.pairs
        )
        return like(
            cls,
            acceptance.plan,
            schema_version=2,
            advisor_version=__version__,
            tensorflow_version=version("tensorflow"),
            trusted=not any(f.outcome is CheckOutcome.OFF for pair in pairs for f in pair.findings),
            untried_on_gpus=acceptance.plan.on_gpus,
            testbed=acceptance.plan.kind.value,
            bundle=str(bundle),
            pairs=pairs,
        )
