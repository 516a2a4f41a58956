"""What `advisor analyze` is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.candidates.families import NAMES, SPLITS
from placement_advisor.solvers.effort import Effort

if TYPE_CHECKING:
    from placement_advisor.analysis.hosts import HostsAsked
    from placement_advisor.machine.testbed_plan import TestbedKind
    from placement_advisor.tf.load.model_source import ModelSource

# Options by which nothing runs.
NO_RUN, QUICK = "--no-run", "--quick"
# What a name of hardware or of a function may hold that a folder's had better not.
_NOT_IN_NAMES = re.compile(r"[^\w.+]+")
# What splits the batch is traced anew, at the size of each share: more than quick.
_QUICK_FAMILIES = tuple(name for name in NAMES if name not in SPLITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """What `advisor analyze` was asked; see its help. ``candidates`` is None if none is named.

    ``ratios`` are those of the samples on each device where the batch is split, None for even ones.
    ``rounds`` is None for as many as it takes; ``refine`` is how many candidates may join once
    others have run. What is ``quick`` does not ``run``. ``devices`` are
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
    refine: int
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


def default_output(
    source: ModelSource, *, hardware: str | None = None, run: bool = True, quick: bool = False
) -> Path:
    """Return the folder, relative to the current one, for an analysis that is given none.

    It is named after the model. What is predicted for other hardware, or without a run, has a
    name of its own: it says less than what was measured, and must not take its place. Nor must
    one object of a file take that of another.
    """
    parts = []
    if source.name is not None:
        parts.append(source.name)
    if hardware is not None:
        parts.append(Path(hardware).stem if _is_file(hardware) else hardware)
    if quick:
        parts.append("quick")
    elif not run and hardware is None:  # For other hardware nothing ever runs.
        parts.append("no-run")
    model = Path(source.path).resolve().stem
    return Path(defaults.OUTPUT) / "-".join([model, *(_NOT_IN_NAMES.sub("-", p) for p in parts)])


def _is_file(hardware: str) -> bool:
    return hardware.endswith(".toml") or Path(hardware).exists()
