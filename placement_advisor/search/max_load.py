"""The placement whose fullest device is as little loaded as possible, with a bound for any.

Contiguous placements are first cut along one order of the groups, which is fast and often best. Then
integer programming looks for better ones and proves how good any can be. The backward pass may run
along the pipeline or against it: the better way counts, and the bound is that of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.digraph import strong_components, topological_order
from placement_advisor.search.along_order import MAX_GROUPS, best_along
from placement_advisor.search.exact_load import load_below

if TYPE_CHECKING:
    from placement_advisor.search.effort import Effort
    from placement_advisor.search.problem import Problem

# Loads that differ by less, in proportion, are the same; the integer program is finer.
PROOF_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxLoad:
    """The device of each op in order, the largest load, and a bound on that of any placement.

    ``device_of`` and ``objective_value`` are None where nothing was found; then ``lower_bound`` is
    infinite if nothing is possible.
    """

    device_of: tuple[str, ...] | None
    objective_value: float | None
    lower_bound: float

    @property
    def is_proven(self) -> bool:
        """Whether no placement is better, or none is possible."""
        if self.objective_value is None:
            return math.isinf(self.lower_bound)
        return self.objective_value <= self.lower_bound * (1 + PROOF_TOLERANCE)


def max_load(problem: Problem, effort: Effort, *, contiguous: bool) -> MaxLoad:
    """Return the best placement that was found within the effort."""
    ways = (False, True) if problem.backward else (False,)
    pipelines = [_Pipeline.of(problem, against=against) for against in ways]
    best = _Best(problem)
    for pipeline in pipelines:
        best.take(pipeline.problem, pipeline.cut())
    if not contiguous:
        return best.result(best.improve(problem, effort, None))
    share = replace(effort, units=effort.units / len(pipelines))
    return best.result(min(best.improve(each.problem, share, each.follows) for each in pipelines))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pipeline:
    """The problem with a group for all that has to share a stage, and what may not come before what."""

    problem: Problem
    follows: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, problem: Problem, *, against: bool) -> _Pipeline:
        pairs = _follows(problem, against=against)
        successors: list[list[int]] = [[] for _ in problem.groups]
        for first, second in pairs:
            successors[first].append(second)
        component = strong_components(successors)
        members: dict[int, list[int]] = {}
        for group, number in enumerate(component):
            members.setdefault(number, []).extend(problem.groups[group])
        merged = replace(problem, groups=tuple(map(tuple, members.values())))
        return cls(problem=merged, follows=tuple(_follows(merged, against=against)))

    def cut(self) -> tuple[str, ...] | None:
        groups = len(self.problem.groups)
        if groups > MAX_GROUPS:
            return None
        order = topological_order(groups, *map(list, zip(*self.follows, strict=True)))
        assert order is not None
        return best_along(self.problem, order)


def _follows(problem: Problem, *, against: bool) -> list[tuple[int, int]]:
    """Return pairs of groups, the second of which no stage holds before the first.

    The passes count for themselves: from one to the other a tensor may go anywhere.
    """
    pairs: dict[tuple[int, int], None] = {}
    for producer, consumer in problem.edges:
        ends = problem.group_of[producer], problem.group_of[consumer]
        is_backward = producer in problem.backward
        if ends[0] != ends[1] and is_backward == (consumer in problem.backward):
            pairs[ends[::-1] if is_backward and against else ends] = None
    return list(pairs)
