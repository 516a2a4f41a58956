"""A local search over the simulator: placements of groups of ops, changed a little at a time.

Method: simulated annealing. Most changes move a stretch of the *chain*, that is of the groups that
the end of the step waits for one after the other, and most of these to the device that the chain
comes from or goes on to: nothing else shortens the step. The others move one group to the device of
a group that it exchanges tensors with, a group to any device, or groups that stand side by side;
where memory is short, all do. A change that makes the step longer is kept with a probability that
falls with what it costs and with the work done. The search goes over the groups it is given, coarse
ones first, and starts on each from the best that it knows. Where the effort allows to try all
placements of the finest groups, that is what it does instead.

Effort is counted in ops simulated, so that it does not depend on the machine.

Source: Kirkpatrick, Gelatt and Vecchi, Optimization by simulated annealing (1983),
https://doi.org/10.1126/science.220.4598.671.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Protocol

import numpy as np

from placement_advisor.solvers.effort import Effort, Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from placement_advisor.solvers.coarse import Grouping

    Ints = NDArray[np.int64]

# One unit of effort, about a second of one core: so many ops simulated. Each simulation also counts
# as some ops, for what it costs beside them. tests/benchmarks/engine_speed.py measures the
# first.
OPS_PER_UNIT = 12_000_000
_OPS_PER_CALL = 800
# What follows was set by hand. That it finds good placements is measured as a whole, by
# tests/benchmarks/step_search.py (docs/search.md), not number by number.

# A change that costs so many times the mean group's share of the step is kept with probability 1/e,
# at first and at last. Judgement: hotter forgets the start, colder stays at the first dead end.
_HOT, _COLD = 0.1, 0.01
# Starts on the coarsest groups: the best that are known go on with equal shares of the effort.
# Judgement: trades depth from the best start for a second and third chance.
_STARTS = 3
# The share of changes on the chain, of these the share that goes where the chain comes from or goes
# on to, and how many groups they move. After so many changes the chain is looked up anew, which
# takes as long as a simulation. Judgement: only what is on the chain shortens a step, but the rest
# has to make room.
_ON_CHAIN, _ALONG_CHAIN = 0.7, 0.8
_MEAN_ON_CHAIN = 2.5
_CHAIN_HOLDS = 30
# Of the other changes, the shares that follow a tensor and that move what stands side by side; the
# rest go anywhere. Judgement: a tensor that no longer crosses gains at once, what goes anywhere
# leaves a dead end.
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

    ``tried`` counts the placements that were simulated. It stopped by proof if these were all that
    keep the finest groups together.
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

    def chain(self, device: Ints, /) -> Ints:
        """Return the ops that the end of the step waits for, one after the other."""


def improve(
    costs: Costs,
    starts: Sequence[Ints],
    levels: Sequence[tuple[Grouping, float]],
    devices: int,
    effort: Effort,
) -> Found:
    """Return the best placement found from ``starts``, which are tried as they are as well.

    ``levels`` are groupings, coarse ones first, with their shares of the effort, which add up to 1;
    a start that parts a group is no start for it.

    Raises:
        ValueError: there is no start.
    """
    search = _Search(costs, devices, effort)
    for start in starts:
        search.take(start)
    is_proven = search.try_all(levels[-1][0])
    done = 0.0
    for grouping, share in () if is_proven else levels:
        known = [device for device in search.best_first() if grouping.keeps_together(device)]
        known = known[: 1 if done else _STARTS]
        for number, start in enumerate(known, start=1):
            search.anneal(grouping, start, effort.units * (done + share * number / len(known)))
        done += share
    best = search.best_first()[0]
    return Found(
        device=best,
        cost=search.cost(best),
        tried=search.tried,
        units=search.units,
        stopped_by=Stop.PROOF if is_proven else Stop.CLOCK if search.is_late() else Stop.EFFORT,
    )


class _Search:
    def __init__(self, costs: Costs, devices: int, effort: Effort) -> None:
        self._costs, self._devices, self._effort = costs, devices, effort
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

    def try_all(self, grouping: Grouping) -> bool:
        """Try all placements of the groups if the effort allows it; return whether it did."""
        starts = [device for device in self.best_first() if grouping.keeps_together(device)]
        free = np.flatnonzero(~grouping.is_fixed)
        affordable = (self._effort.units - self.units) / _units(len(grouping.group_of))
        if not starts or self._devices ** len(free) > affordable:
            return False
        groups = grouping.devices(starts[0])
        best, best_at = self.cost(starts[0]), starts[0]
        for chosen in product(range(self._devices), repeat=len(free)):
            if self.is_late():
                return False
            groups[free] = chosen
            device = groups[grouping.group_of]
            new = self._try(device)
            if new.key < best.key:
                new = self._costs.confirm(device, new)
                if new.key < best.key:
                    best, best_at = new, device
        self._known[best_at.tobytes()] = best, best_at
        return True

    def anneal(self, grouping: Grouping, start: Ints, until: float) -> None:
        """Search from a start until so many units are spent in all; keep the best that is met."""
        at = grouping.devices(start)
        cost = best = self.cost(start)
        best_at = at
        began, groups = self.units, len(grouping.movable)
        if self._devices == 1 or not groups:
            return
        chain, changes = self._chain(grouping, at), 0
        while self.units < until and not self.is_late():
            progress = (self.units - began) / (until - began)
            if changes == _CHAIN_HOLDS:
                chain, changes = self._chain(grouping, at), 0
            changes += 1
            # What is too large for a device need not be on the chain.
            change = self._change(grouping, at, chain[:0] if cost.excess_bytes else chain)
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
        # None where the step is shorter, but a look in full has found that it does not fit.
        loss = max(0, new.step_ns - cost.step_ns) / max(1, cost.step_ns)
        return bool(self._random.random() < math.exp(-loss / heat))

    def _change(self, grouping: Grouping, at: Ints, chain: Ints) -> Ints:
        """Return another placement of the groups."""
        while True:
            change = at.copy()
            if len(chain) and self._random.random() < _ON_CHAIN:
                self._change_on(chain, change)
            else:
                self._change_anywhere(grouping, change)
            if (change != at).any():
                return change

    def _change_on(self, chain: Ints, change: Ints) -> None:
        first = int(self._random.integers(len(chain)))
        after = first + int(self._random.geometric(1 / _MEAN_ON_CHAIN))
        beside = (first - 1, after)[self._random.integers(2)]
        if 0 <= beside < len(chain) and self._random.random() < _ALONG_CHAIN:
            target = change[chain[beside]]
        else:
            target = self._another(change[chain[first]])
        change[chain[first:after]] = target

    def _change_anywhere(self, grouping: Grouping, change: Ints) -> None:
        kind = self._random.random()
        if kind < _ALONG_TENSOR and len(grouping.pairs):
            pair = grouping.pairs[self._random.integers(len(grouping.pairs))]
            mover, other = self._random.permutation(pair)
            if not grouping.is_fixed[mover]:
                change[mover] = change[other]
        elif kind < _ALONG_TENSOR + _STRETCH:
            first = int(self._random.integers(len(change)))
            length = 1 + int(self._random.geometric(1 / _MEAN_STRETCH))
            stretch = slice(first, first + length)
            target = self._random.integers(self._devices)
            change[stretch] = np.where(grouping.is_fixed[stretch], change[stretch], target)
        else:
            mover = self._random.choice(grouping.movable, p=grouping.weights)
            change[mover] = self._another(change[mover])

    def _another(self, device: np.int64) -> int:
        """Return any other device."""
        return int((device + self._random.integers(1, self._devices)) % self._devices)

    def _chain(self, grouping: Grouping, at: Ints) -> Ints:
        """Return the groups that the end of the step waits for, those apart that never move."""
        self._spend(len(grouping.group_of))
        groups = grouping.group_of[self._costs.chain(at[grouping.group_of])]
        groups = groups[np.isin(groups, grouping.movable)]
        is_new = np.ones(len(groups), bool)
        is_new[1:] = groups[1:] != groups[:-1]
        return groups[is_new]

    def _try(self, device: Ints) -> Cost:
        self._spend(len(device))
        self.tried += 1
        return self._costs.guess(device)

    def _spend(self, ops: int) -> None:
        self.units += _units(ops)


def _units(ops: int) -> float:
    """Return the effort of one simulation."""
    return (ops + _OPS_PER_CALL) / OPS_PER_UNIT
