"""What `advisor doctor --run` answers: what a known step shows of the devices here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar, Literal

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
    outcome: CheckOutcome
    finding: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two devices that ran the step."""

    near: Text
    far: Text
    findings: Rows[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a known step showed of the devices here."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[2]
    advisor_version: Text
    tensorflow_version: Text
    trusted: bool
    """Nothing is off; exit code 1 if not."""
    untried_on_gpus: bool
    """Devices are GPUs, never tried yet."""
    testbed: Literal["gpus", "workers", "hosts"]
    description: Text
    bundle: Text
    """As given; without folder in the bundle."""
    pairs: Rows[Pair]

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
