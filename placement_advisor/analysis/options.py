"""What `advisor analyze` is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.candidates.families import NAMES, SPLITS
from placement_advisor.solvers.effort import Effort

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.hosts import HostsAsked
    from placement_advisor.machine.testbed_plan import TestbedKind
    from placement_advisor.tf.load.model_source import ModelSource

# Options by which nothing runs.
NO_RUN, QUICK = "--no-run", "--quick"
# What splits the batch is traced anew, at the size of each share: more than quick.
_QUICK_FAMILIES = tuple(name for name in NAMES if name not in SPLITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """What `advisor analyze` was asked; see its help. ``candidates`` is None if none is named.

    ``ratios`` are those of the samples on each device where the batch is split, None for even ones.
    ``rounds`` is None for as many as it takes. What is ``quick`` does not ``run``. ``devices`` are
    those of ``hosts``, if there are any; None runs on this machine.
    """

    source: ModelSource
    devices: int
    hardware: str | None
    costs: Path | None
    testbed: TestbedKind | None
    hosts: HostsAsked | None = None
    candidates: tuple[str, ...] | None
    ratios: tuple[float, ...] | None
    effort: Effort
    steps: int
    rounds: int | None
    run: bool
    quick: bool
    open_ports: bool
    output: Path

    @property
    def families(self) -> tuple[str, ...]:
        """The families of candidates to try."""
        return self.candidates or (_QUICK_FAMILIES if self.quick else NAMES)


def effort_of(units: float | None, seed: int, *, quick: bool) -> Effort:
    """Return how hard to search; None for as hard as usual."""
    if units is None:
        units = defaults.QUICK_EFFORT if quick else defaults.EFFORT
    return Effort(units=units, seed=seed)
