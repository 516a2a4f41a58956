"""A local search over the simulator: placements of groups of ops, changed a little at a time.

Method: simulated annealing. A change moves one group to the device of a group that it exchanges
tensors with, a group to any device, or a stretch of groups that follow one another. Groups that
take more time are moved more often. A change that makes the step longer is kept with a probability
that falls with what it costs and with the work done. The search goes over the groups it is given,
coarse ones first, and starts on each from the best that it knows.

Effort is counted in ops simulated, so that it does not depend on the machine.

Source: Kirkpatrick, Gelatt and Vecchi, Optimization by simulated annealing (1983),
https://doi.org/10.1126/science.220.4598.671.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from placement_advisor.solvers.effort import Effort, Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from placement_advisor.solvers.coarse import Grouping

    Ints = NDArray[np.int64]

# One unit of effort, about a second of one core: so many ops simulated. Each simulation also counts
# as some ops, for what it costs beside them.
OPS_PER_UNIT = 6_000_000
_OPS_PER_CALL = 800
# A change that costs so many times the mean group's share of the step is kept with probability 1/e,
# at first and at last.
_HOT, _COLD = 0.1, 0.01
# Starts on the coarsest groups: the best that are known go on with equal shares of the effort.
_STARTS = 3
# Of the changes, the shares that follow a tensor and that move a stretch; the others move anywhere.
_ALONG_TENSOR, _STRETCH = 0.5, 0.25
_MEAN_STRETCH = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What is to be small: bytes that do not fit first, then the step time."""

    excess_bytes: int
    step_ns: int

    @property
    def key(self) -> tuple[int, int]:
        """For comparison."""
        return self.excess_bytes, self.step_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best placement: the number of each op's device, its cost, and how the search ended.

    ``tried`` counts the placements that were simulated.
    """

    device: Ints
    cost: Cost
    tried: int
    units: float
    stopped_by: Stop


class Costs(Protocol):
    """Knows what placements cost, given the number of each op's device."""

    def guess(self, device: Ints, /) -> Cost:
        """Return the cost, where memory may be estimated."""

    def confirm(self, device: Ints, guessed: Cost, /) -> Cost:
        """Return the cost as it is."""


def improve(
    costs: Costs,
    starts: Sequence[Ints],
    groupings: Sequence[Grouping],
    devices: int,
    effort: Effort,
) -> Found:
    """Return the best placement found from ``starts``, which are tried as they are as well.

    ``groupings`` are coarse ones first; a start that parts a group is no start for it.

    Raises:
        ValueError: there is no start.
    """
    search = _Search(costs, devices, effort)
    for start in starts:
        search.take(start)
    share = effort.units / max(1, len(groupings))
    for level, grouping in enumerate(groupings, start=1):
        known = [device for device in search.best_first() if grouping.keeps_together(device)]
        known = known[: _STARTS if level == 1 else 1]
        for number, start in enumerate(known, start=1):
            until = share * (level - 1 + number / len(known))
            search.anneal(grouping, start, until)
    best = search.best_first()[0]
    return Found(
        device=best,
        cost=search.cost(best),
        tried=search.tried,
        units=search.units,
        stopped_by=Stop.CLOCK if search.is_late() else Stop.EFFORT,
    )


class _Search:
    def __init__(self, costs: Costs, devices: int, effort: Effort) -> None:
        self._costs, self._devices = costs, devices
        self._random = np.random.default_rng(effort.seed)
        self._deadline = (
            math.inf if effort.time_limit_s is None else time.monotonic() + effort.time_limit_s
        )
        self._known: dict[bytes, tuple[Cost, Ints]] = {}
        self.units = 0.0
        self.tried = 0

    def is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def take(self, device: Ints) -> None:
        self._known[device.tobytes()] = self._costs.confirm(device, self._try(device)), device

    def cost(self, device: Ints) -> Cost:
        return self._known[device.tobytes()][0]

    def best_first(self) -> list[Ints]:
        ranked = sorted(self._known.values(), key=lambda entry: entry[0].key)
        if not ranked:
            raise ValueError("there is no placement to start from")
        return [device for _, device in ranked]

    def anneal(self, grouping: Grouping, start: Ints, until: float) -> None:
        """Search from a start until so many units are spent in all; keep the best that is met."""
        at = grouping.devices(start)
        cost = best = self.cost(start)
        best_at = at
        began, groups = self.units, len(grouping.movable)
        while self.units < until and not self.is_late():
            progress = (self.units - began) / (until - began)
            change = self._change(grouping, at)
            if change is None:
                break
            new = self._try(change[grouping.group_of])
            if new.excess_bytes > cost.excess_bytes:
                continue
            if new.key < best.key:
                new = self._costs.confirm(change[grouping.group_of], new)
                if new.key < best.key:
                    best, best_at = new, change
            if new.key <= cost.key or self._is_worth_a_try(cost, new, progress, groups):
                at, cost = change, new
        found = best_at[grouping.group_of]
        self._known[found.tobytes()] = best, found

    def _is_worth_a_try(self, cost: Cost, new: Cost, progress: float, groups: int) -> bool:
        heat = _HOT * (_COLD / _HOT) ** progress / groups
        loss = (new.step_ns - cost.step_ns) / max(1, cost.step_ns)
        return bool(self._random.random() < math.exp(-loss / heat))

    def _change(self, grouping: Grouping, at: Ints) -> Ints | None:
        """Return another placement of the groups; None if there is but one device or group."""
        if self._devices == 1 or not len(grouping.movable):
            return None
        kind = self._random.random()
        change = at.copy()
        if kind < _ALONG_TENSOR and len(grouping.pairs):
            pair = grouping.pairs[self._random.integers(len(grouping.pairs))]
            mover, other = self._random.permutation(pair)
            if at[mover] != at[other] and not grouping.is_fixed[mover]:
                change[mover] = at[other]
                return change
        if kind < _ALONG_TENSOR + _STRETCH:
            first = int(self._random.integers(len(at)))
            length = 1 + int(self._random.geometric(1 / _MEAN_STRETCH))
            change[first : first + length] = self._random.integers(self._devices)
            change[grouping.is_fixed] = at[grouping.is_fixed]
        if (change == at).all():
            mover = int(self._random.choice(grouping.movable, p=grouping.weights))
            change[mover] = (at[mover] + self._random.integers(1, self._devices)) % self._devices
        return change

    def _try(self, device: Ints) -> Cost:
        self.units += (len(device) + _OPS_PER_CALL) / OPS_PER_UNIT
        self.tried += 1
        return self._costs.guess(device)
