"""What `advisor analyze` is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.machine.testbed_plan import TestbedKind
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.tf.load.model_source import ModelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """What `advisor analyze` was asked; see its help. ``candidates`` is None if none is named.

    ``ratios`` are those of the samples on each device where the batch is split, None for even ones.
    """

    source: ModelSource
    devices: int
    hardware: str | None
    costs: Path | None
    testbed: TestbedKind | None
    candidates: tuple[str, ...] | None
    ratios: tuple[float, ...] | None
    effort: Effort
    steps: int
    rounds: int
    run: bool
    open_ports: bool
    output: Path
