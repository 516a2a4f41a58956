"""The best placement of a problem for either objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.errors import PlacementError
from placement_advisor.solvers.conflict import find_conflict
from placement_advisor.solvers.search_result import Found, Objective

if TYPE_CHECKING:
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.makespan.makespan import Makespan
    from placement_advisor.solvers.problem import Problem
    from placement_advisor.solvers.throughput.max_load import MaxLoad

# A conflict is named to be found, and an error is one line.
_MOST_NAMED = 8


def search_problem(
    problem: Problem, objective: Objective, effort: Effort, *, contiguous: bool
) -> Found:
    """Return the placement of least makespan or load; ``contiguous`` is about the latter alone.

    Raises:
        PlacementError: no placement is possible, or none was found.
    """
    conflict = find_conflict(problem)
    if conflict is not None:
        named = ", ".join(conflict.ops[:_MOST_NAMED])
        if len(conflict.ops) > _MOST_NAMED:
            named += f", … ({len(conflict.ops)} ops)"
        raise PlacementError(
            f"no placement is possible: {named}: {conflict.reason}",
            hint="give them devices that run them and have the memory",
        )
    best: MaxLoad | Makespan
    units: float | None = None
    if objective is Objective.THROUGHPUT:
        from placement_advisor.solvers.throughput.max_load import max_load

        best = max_load(problem, effort, contiguous=contiguous)
        units = best.units
    else:
        from placement_advisor.solvers.makespan.makespan import least_makespan

        best, contiguous = least_makespan(problem, effort), False
    if best.device_of is None or best.objective_value is None:
        raise _nothing_found(is_proven=best.is_proven, contiguous=contiguous)
    return Found(
        device_of=dict(zip(problem.ops, best.device_of, strict=True)),
        objective_value=best.objective_value,
        lower_bound=best.lower_bound,
        is_proven=best.is_proven,
        stopped_by=best.stopped_by,
        units=units,
    )


def _nothing_found(*, is_proven: bool, contiguous: bool) -> PlacementError:
    if is_proven:
        kind = "contiguous placement" if contiguous else "placement"
        hint = "try --no-contiguous" if contiguous else "give them devices with more memory"
        return PlacementError(f"no {kind} is possible (proved)", hint=hint)
    return PlacementError(
        "no placement was found, and it is not proved that there is none",
        hint="search longer: --effort, --time-limit",
    )
