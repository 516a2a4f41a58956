"""The placement whose fullest device is least loaded, with a bound for any.

Contiguous placements are first cut along one order of the groups, which is fast and often best;
others then start a quick local search, whose result may turn out to meet the bound of what single
devices can hold. Else a long one follows, and integer programming looks for better ones and proves
how good any can be. The backward pass may run along the pipeline or against it: the better way
counts, and the bound is that of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.clock import Countdown
from placement_advisor.graph.digraph import strong_components, topological_order
from placement_advisor.solvers.effort import PROOF_TOLERANCE, Stop
from placement_advisor.solvers.throughput.cut_along_order import best_along
from placement_advisor.solvers.throughput.loads import group_work, largest_load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.problem import Problem

# What a first local search gets of the effort and of the time, then the bound, then a second local
# search; each may exceed the time by its last round. The rest is for integer programming.
# Judgement: the first alone finds what is optimal for bert24 and bert_l-3; on layer graphs with
# branches, 40 units of the local search mostly ended lower than the 10 that it had.
_QUICK_SHARE = 0.04
_LOCAL_SHARE = 0.4
_COVER_SHARE = 0.25
# An end where there is no limit; the local search then begins with a tenth of a second.
_MOST_LOCAL_UNITS = 1_000.0
_MOST_COVER_UNITS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxLoad:
    """The device of each op in order, the largest load, and a bound on that of any placement.

    ``device_of`` and ``objective_value`` are None where nothing was found; then ``lower_bound`` is
    infinite if nothing is possible. ``units`` is the effort that was spent.
    """

    device_of: tuple[str, ...] | None
    objective_value: float | None
    lower_bound: float
    stopped_by: Stop
    units: float

    @property
    def is_proven(self) -> bool:
        """Whether no placement is better, or none is possible."""
        if self.objective_value is None:
            return math.isinf(self.lower_bound)
        return self.objective_value <= self.lower_bound * (1 + PROOF_TOLERANCE)


def max_load(problem: Problem, effort: Effort, *, contiguous: bool) -> MaxLoad:
    """Return the best placement that was found within the effort."""
    search = _Search(problem, effort)
    ways = (False, True) if problem.backward else (False,)
    pipelines = [_Pipeline.of(problem, against=against) for against in ways]
    for pipeline in pipelines:
        search.take(pipeline.problem, pipeline.cut())
    if contiguous:
        bounds = [
            search.improve(each.problem, each.follows, ways_left=len(pipelines) - i)
            for i, each in enumerate(pipelines)
        ]
        return search.result(min(bounds))
    cut = search.by_group(problem)
    search.improve_locally(cut, share=_QUICK_SHARE)
    search.cover()
    if search.improve_locally(cut, share=_LOCAL_SHARE):
        search.cover()
    return search.result(search.improve(problem, None, ways_left=1))


class _Search:
    """The best placement so far, by op, and what is left of the effort."""

    def __init__(self, problem: Problem, effort: Effort) -> None:
        self._problem, self._effort = problem, effort
        self._countdown = Countdown(effort.time_limit_s)
        self._units = 0.0
        self._bound = _simple_bound(problem)
        self._stop = Stop.PROOF
        self._device_of: tuple[str, ...] | None = None
        self._found_in = problem
        self._value = math.inf

    def take(self, problem: Problem, device_of: Sequence[str] | None) -> None:
        """Keep a placement of the problem's groups, which may be merged ones, if it is better."""
        if device_of is None:
            return
        value = largest_load(problem, device_of)
        if value < self._value:
            self._value, self._found_in = value, problem
            self._device_of = tuple(device_of[group] for group in problem.group_of)

    def by_group(self, problem: Problem) -> tuple[str, ...] | None:
        """Return the best device of each group, None if there is none."""
        if self._device_of is None:
            return None
        return tuple(self._device_of[group[0]] for group in problem.groups)

    def improve_locally(self, start: Sequence[str] | None, *, share: float) -> bool:
        """Look for better placements by local search; return whether one was found."""
        if start is None or self._is_met():
            return False
        from placement_advisor.solvers.throughput.local_load import locally_best

        found, units = locally_best(
            self._problem,
            start,
            units=min(_MOST_LOCAL_UNITS, self._effort.units * share),
            is_over=self._part_over(share),
            seed=self._effort.seed,
        )
        self._units += units
        known = self._value
        self.take(self._problem, found)
        return self._value < known

    def cover(self) -> None:
        """Raise the bound of all placements by what single devices can hold."""
        from placement_advisor.solvers.throughput.covering_bound import MAX_GROUPS, covering_bound

        if self._device_of is None or self._is_met() or len(self._problem.groups) > MAX_GROUPS:
            return
        self._bound, units = covering_bound(
            self._problem,
            self._bound,
            self._value,
            units=min(_MOST_COVER_UNITS, self._effort.units * _COVER_SHARE),
            is_over=self._part_over(_COVER_SHARE),
        )
        self._units += units

    def improve(
        self, problem: Problem, follows: Sequence[tuple[int, int]] | None, *, ways_left: int
    ) -> float:
        """Look for better placements by integer programming; return a bound on any.

        Such a placement is contiguous if there is ``follows``. The effort is shared by the ways
        that are left.
        """
        if self._is_met():
            return self._bound
        from placement_advisor.solvers.throughput.exact_load import (
            MAX_LITERALS,
            literals,
            load_below,
        )

        if literals(problem) > MAX_LITERALS:
            self._stop = Stop.SIZE
            return self._bound
        left_s = self._countdown.left_s()
        if left_s == 0:
            self._stop = Stop.CLOCK
            return self._bound
        share = replace(
            self._effort,
            units=max(0.0, self._effort.units - self._units) / ways_left,
            time_limit_s=None if left_s is None else left_s / ways_left,
        )
        # What is contiguous one way need not be so the other.
        hint = self.by_group(problem) if follows is None or problem is self._found_in else None
        limit = _sure_load(problem) if math.isinf(self._value) else self._value
        found = load_below(problem, limit, share, least=self._bound, follows=follows, hint=hint)
        self._units += found.units
        if found.stopped_by is not Stop.PROOF:
            self._stop = found.stopped_by
        if found.device_of is None and found.stopped_by is Stop.PROOF and hint is None:
            # Nothing is there below what is known; or, where nothing is known, at all.
            return self._value
        self.take(problem, found.device_of)
        return max(self._bound, found.lower_bound)

    def result(self, lower_bound: float) -> MaxLoad:
        """Return what was found, with a bound on any."""
        found = MaxLoad(
            device_of=self._device_of,
            objective_value=None if self._device_of is None else self._value,
            lower_bound=min(lower_bound, self._value),
            stopped_by=self._stop,
            units=self._units,
        )
        return replace(found, stopped_by=Stop.PROOF) if found.is_proven else found

    def _is_met(self) -> bool:
        """Whether the best placement meets the bound, or nothing is possible."""
        return self._bound * (1 + PROOF_TOLERANCE) >= self._value or math.isinf(self._bound)

    def _part_over(self, share: float) -> Callable[[], bool]:
        """Return what says whether a share of the time that is left has passed."""
        left_s = self._countdown.left_s()
        part = Countdown(None if left_s is None else left_s * share)
        return lambda: part.left_s() == 0


def _simple_bound(problem: Problem) -> float:
    """Return the larger of the least work over all devices and of the longest group."""
    least = [
        min((w for w in column if w is not None), default=math.inf)
        for column in zip(*group_work(problem), strict=True)
    ]
    return max(math.fsum(least) / len(problem.devices), max(least))


def _sure_load(problem: Problem) -> float:
    """Return what no load exceeds."""
    most = [
        max((w for w in column if w is not None), default=0.0)
        for column in zip(*group_work(problem), strict=True)
    ]
    return math.fsum(most) + math.fsum(problem.copy_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pipeline:
    """The problem with a group for all that has to share a stage, and what follows what."""

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
        """Return the best cut of one order of the groups, None if there is none."""
        ends = [list(column) for column in zip(*self.follows, strict=True)] or [[], []]
        order = topological_order(len(self.problem.groups), *ends)
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
