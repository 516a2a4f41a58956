"""What searches answer, and what one of a graph file does, for reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.solvers.effort import Effort, Stop
    from placement_advisor.solvers.problem import Problem


class Objective(StrEnum):
    """What the best placement is best at: one step alone, or steps one after the other."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best placement that a search found, and what is known of any.

    No placement has less than ``lower_bound``, and ``is_proven`` says that this one has no more.
    ``units`` is the effort that was spent, None if not known.
    """

    device_of: Mapping[str, str]
    objective_value: float
    lower_bound: float
    is_proven: bool
    stopped_by: Stop
    units: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What was asked of a graph file, and what was found.

    Times are in ns if ``in_ns``, else in the unit of the file.
    """

    graph_file: str
    machine: str
    objective: Objective
    contiguous: bool
    in_ns: bool
    problem: Problem
    found: Found
    effort: Effort
    seconds: float
