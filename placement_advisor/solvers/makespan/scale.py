"""Times as whole numbers for a solver, rounded down so that its bounds hold for the true times."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.solvers.effort import PROOF_TOLERANCE
from placement_advisor.solvers.makespan.delays import whole_unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.solvers.problem import Problem

# Of less, a millionth is no number any more.
_LEAST_UNIT = sys.float_info.min
# CP-SAT takes whole numbers of 64 bits, and adds many of them up.
_MOST_UNITS = 2.0**48


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The unit of whole times, the last makespan in it that counts as better, and what to prove."""

    unit: float
    last: int
    proof: float

    @classmethod
    def of(cls, problem: Problem, limit: float) -> Scale:
        """Return the scale on which to look for makespans below a limit, which is above 0."""
        unit = whole_unit(problem)
        if unit is not None:
            return cls(unit=unit, last=math.ceil(limit / unit) - 1, proof=limit)
        # No chain has more than two roundings per op; no makespan is less than an op's least time.
        least = max(_least_times(problem)) or limit
        finest = least * PROOF_TOLERANCE / (4 * len(problem.ops))
        unit = max(finest, limit / _MOST_UNITS, _LEAST_UNIT)
        proof = limit * (1 - PROOF_TOLERANCE / 2)
        return cls(unit=unit, last=math.floor(proof / unit), proof=proof)

    def units(self, time: float | None) -> float:
        """Return a time rounded down, infinity for what cannot be."""
        return math.inf if time is None else float(math.floor(time / self.unit))


def _least_times(problem: Problem) -> Iterable[float]:
    for times in zip(*(pool.work for pool in problem.pools), strict=True):
        yield min((time for time in times if time is not None), default=0.0)
