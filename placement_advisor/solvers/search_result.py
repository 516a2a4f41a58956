"""What a search of a graph file answers, for reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.solvers.effort import Effort, Stop
    from placement_advisor.solvers.problem import Problem


class Objective(StrEnum):
    """What the best placement is best at: one step alone, or steps one after the other."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The best placement that was found, and what is known of any.

    Times are in ns if ``in_ns``, else in the unit of the file. ``device_of`` has the device of each
    op of the problem in order. ``units`` is the effort that was spent, None if not known.
    """

    graph_file: str
    machine: str
    objective: Objective
    contiguous: bool
    in_ns: bool
    problem: Problem
    device_of: tuple[str, ...]
    objective_value: float
    lower_bound: float
    is_proven: bool
    stopped_by: Stop
    effort: Effort
    units: float | None
    seconds: float
