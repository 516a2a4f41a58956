"""The placement with the shortest simulated step that fits into the devices' memory.

A local search over the simulator moves groups of ops from device to device, a few at a time.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.graph.digraph import strong_components
from placement_advisor.graph.op import TRAINING_ROLES, Op
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.schedule import shortages
from placement_advisor.solvers.effort import Effort, Stop

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from placement_advisor.graph.op_graph import OpGraph

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    from placement_advisor.simulator.simulator import Simulator


FAMILY = "searched"
# What layers, their state apart, and single ops take of the effort. Judgement: layers are few and
# settle early, single ops are too many to be gone through. Measured as a whole, by
# tests/benchmarks/step_search.py.
_SHARES = (0.1, 0.55, 0.35)
# A peak that is estimated below this share of the memory is taken to fit until the end. Judgement:
# trades a hundredfold time for estimates that are off by no more than two; the last placement is
# looked at in full, and if that fails all are, so that no answer rests on it.
_TRUSTED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastStep:
    """The best placement that was found, its simulated step, and how the search ended.

    ``excess_bytes`` do not fit into the memory of its devices; 0 where it fits. ``units`` of effort
    were spent on simulating ``tried`` placements.
    """

    placement: Placement
    step_ns: int
    excess_bytes: int
    tried: int
    units: float
    stopped_by: Stop


def least_step(
    simulator: Simulator,
    starts: Sequence[Placement],
    layer_of: Mapping[str, str],
    effort: Effort,
    fixed: Set[str] = frozenset(),
) -> LeastStep:
    """Return the best placement found from the starts; equal arguments give equal answers.

    ``layer_of`` has the ops that stay together at first, by any name for what they belong to. Ops
    that are ``fixed`` stay where every start has them.

    Raises:
        PlacementError: a start does not fit the graph and the cluster.
        ValueError: there is no start.
    """
    names = simulator.cluster.place_names()
    numbers = [simulator.devices_of(start) for start in starts]
    costs = _Costs(simulator)
    keys: tuple[Mapping[str, Hashable], ...] = (
        layer_of,
        state_apart(simulator.graph, simulator.ops, layer_of),
        {},
    )
    groupings = [group_ops(simulator, each, fixed) for each in keys]
    levels = tuple(zip(groupings, _SHARES, strict=True))
    search = _Search(costs, len(names), effort)
    stopped_by = search.run(numbers, levels)
    if costs.excess_bytes(search.best) > search.cost(search.best).excess_bytes:
        # From now on, every placement that would be the best is looked at in full.
        costs.trusted = 0.0
        search = _Search(costs, len(names), effort)
        stopped_by = search.run(numbers, levels)
    cost = search.cost(search.best)
    return LeastStep(
        placement=_placement(simulator, search.best, names),
        step_ns=cost.step_ns,
        excess_bytes=cost.excess_bytes,
        tried=search.tried,
        units=search.units,
        stopped_by=stopped_by,
    )


def state_apart(
    graph: OpGraph, ops: Sequence[Op], layer_of: Mapping[str, str]
) -> dict[str, tuple[str, bool]]:
    """Return keys by which the state of a layer is apart from the rest of it."""
    state: dict[str, str | None] = {}
    for op in reversed(ops):
        if op.variable is not None:
            state[op.name] = layer_of.get(op.name)
        elif op.role in TRAINING_ROLES:
            served = {state.get(edge.consumer) for edge in graph.outputs_of(op.name)}
            state[op.name] = served.pop() if len(served) == 1 else None
    return {
        op.name: (state_of, True) if state_of is not None else (layer_of[op.name], False)
        for op in ops
        for state_of in [state.get(op.name)]
        if state_of is not None or op.name in layer_of
    }


def _placement(simulator: Simulator, device: Ints, names: Sequence[str]) -> Placement:
    device_of = {op.name: names[i] for op, i in zip(simulator.ops, device.tolist(), strict=True)}
    return Placement(label=FAMILY, family=FAMILY, device_of=device_of, rationale="searched")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups in the order of their first op.

    ``group_of`` is the group of each op, ``pairs`` those that exchange tensors. Groups that take
    time are ``movable`` unless one of their ops is fixed; ``worth`` says how often each of
    these, or one before it, is worth a move.
    """

    group_of: Ints
    first_op: Ints
    pairs: Ints
    movable: Ints
    is_fixed: NDArray[np.bool_]
    worth: Floats

    def devices(self, device: Ints) -> Ints:
        """Return the device of each group, given that of each op."""
        return device[self.first_op]

    def keeps_together(self, device: Ints) -> bool:
        """Return whether the placement parts no group."""
        return bool((self.devices(device)[self.group_of] == device).all())


def group_ops(simulator: Simulator, key_of: Mapping[str, Hashable], fixed: Set[str]) -> Grouping:
    """Return the groups of ops with equal keys; an op without a key is a group of its own.

    Ops of one variable or table stay together, whatever their keys, and so do their groups.
    A group with a fixed op is never moved.
    """
    ops, (arrays, *_) = simulator.ops, simulator.arrays
    beside: list[list[int]] = [[] for _ in ops]
    first_of: dict[tuple[str, Hashable], int] = {}
    for i, op in enumerate(ops):
        for key in (("key", key_of.get(op.name)), ("variable", op.variable)):
            if key[1] is not None:
                other = first_of.setdefault(key, i)
                beside[i].append(other)
                beside[other].append(i)
    order: dict[int, int] = {}
    found = [order.setdefault(part, len(order)) for part in strong_components(beside)]
    group_of = np.array(found, np.int64)
    weight = np.bincount(group_of, simulator.most_ns(), len(order))
    is_fixed = np.bincount(group_of, [op.name in fixed for op in ops], len(order)) > 0
    movable = np.flatnonzero((weight > 0) & ~is_fixed)
    # Between moving all alike and moving by time alone.
    weights = np.sqrt(weight[movable])
    worth = (weights / weights.sum()).cumsum()
    producer = np.repeat(arrays.producer, arrays.readers)
    pairs = np.unique(np.column_stack([group_of[producer], group_of[arrays.reader]]), axis=0)
    return Grouping(
        group_of=group_of,
        first_op=np.unique(group_of, return_index=True)[1].astype(np.int64),
        pairs=pairs[pairs[:, 0] != pairs[:, 1]],
        movable=movable,
        is_fixed=is_fixed,
        worth=worth / worth[-1:],
    )


class _Cost(NamedTuple):
    """What is to be small: bytes that do not fit first, then the step time."""

    excess_bytes: int
    step_ns: int


class _Costs:
    """Simulates steps, and tells what does not fit."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self._places = simulator.cluster.places()
        limits = [place.memory_bytes for place in self._places]
        self._limit = np.array([np.inf if limit is None else limit for limit in limits])
        resident = np.array([float(op.parameter_bytes) for op in simulator.ops])
        made = np.array([float(sum(size or 0 for size in op.output_bytes)) for op in simulator.ops])
        share_held, self.trusted = 1.0, 1.0
        if np.isfinite(self._limit).any():
            share_held, self.trusted = self._share_held_alone(float(made.sum())), _TRUSTED
        self._bytes = resident + share_held * made

    def guess(self, device: Ints) -> _Cost:
        """Return the cost, where memory is estimated."""
        held = self._held(device)
        excess = float(np.maximum(held - self._limit, 0).sum())
        return _Cost(excess_bytes=round(excess), step_ns=self.simulator.step_ns_at(device))

    def confirm(self, device: Ints, guessed: _Cost) -> _Cost:
        """Return the cost as it is: estimates that come near to the memory are checked."""
        if (self._held(device) <= self.trusted * self._limit).all():
            return guessed
        return _Cost(excess_bytes=self.excess_bytes(device), step_ns=guessed.step_ns)

    def excess_bytes(self, device: Ints) -> int:
        """Return how many bytes of the step do not fit at its peaks."""
        if np.isinf(self._limit).all():
            return 0
        short = shortages(self.simulator.peaks_at(device), self._places)
        return sum(each.missing_bytes for each in short)

    def _held(self, device: Ints) -> Floats:
        return np.bincount(device, self._bytes, len(self._limit)).astype(np.float64)

    def _share_held_alone(self, made: float) -> float:
        """Return how much of all tensors is held at once in a step on the first device."""
        alone = np.zeros(len(self.simulator.ops), np.int64)
        peak = self.simulator.peaks_at(alone)[self._places[0].name]
        return max(0, peak.size_bytes - peak.resident_bytes) / made if made else 0.0


# One unit of effort, about a second of one core: so many ops simulated. Each simulation also counts
# as some ops, for what it costs beside them. tests/benchmarks/engine_speed.py measures the
# first.
OPS_PER_UNIT = 12_000_000
_OPS_PER_CALL = 800
# What follows was set by hand. That it finds good placements is measured as a whole, by
# tests/benchmarks/step_search.py (docs/explanation/search.md), not number by number.

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


class _Search:
    def __init__(self, costs: _Costs, devices: int, effort: Effort) -> None:
        self._costs, self._devices, self._effort = costs, devices, effort
        self._random = np.random.default_rng(effort.seed)
        self._deadline = (
            math.inf if effort.time_limit_s is None else time.monotonic() + effort.time_limit_s
        )
        self._known: dict[bytes, tuple[_Cost, Ints]] = {}
        self.units = 0.0
        self.tried = 0

    def run(self, starts: Sequence[Ints], levels: Sequence[tuple[Grouping, float]]) -> Stop:
        """Search from the starts, which are tried as they are as well.

        ``levels`` are groupings, coarse ones first, with their shares of the effort, which add up
        to 1; a start that parts a group is no start for it.

        Raises:
            ValueError: there is no start.
        """
        for start in starts:
            cost = self._costs.confirm(start, self._try(start))
            self._known[start.tobytes()] = cost, start
        if self._try_all(levels[-1][0]):
            return Stop.PROOF
        done = 0.0
        for grouping, share in levels:
            known = [device for device in self._best_first() if grouping.keeps_together(device)]
            known = known[: 1 if done else _STARTS]
            for number, start in enumerate(known, start=1):
                until = self._effort.units * (done + share * number / len(known))
                self._anneal(grouping, start, until)
            done += share
        return Stop.CLOCK if self._is_late() else Stop.EFFORT

    @property
    def best(self) -> Ints:
        """The best placement so far: the number of each op's device."""
        return self._best_first()[0]

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def cost(self, device: Ints) -> _Cost:
        return self._known[device.tobytes()][0]

    def _best_first(self) -> list[Ints]:
        if not self._known:
            raise ValueError("there is no placement to start from")
        ranked = sorted(self._known.values(), key=lambda entry: entry[0])
        return [device for _, device in ranked]

    def _try_all(self, grouping: Grouping) -> bool:
        """Try all placements of the groups if the effort allows it; return whether it did."""
        starts = [device for device in self._best_first() if grouping.keeps_together(device)]
        free = np.flatnonzero(~grouping.is_fixed)
        affordable = (self._effort.units - self.units) / _units(len(grouping.group_of))
        if not starts or self._devices ** len(free) > affordable:
            return False
        groups = grouping.devices(starts[0])
        best, best_at = self.cost(starts[0]), starts[0]
        for chosen in product(range(self._devices), repeat=len(free)):
            if self._is_late():
                return False
            groups[free] = chosen
            device = groups[grouping.group_of]
            new = self._try(device)
            if new < best:
                new = self._costs.confirm(device, new)
                if new < best:
                    best, best_at = new, device
        self._known[best_at.tobytes()] = best, best_at
        return True

    def _anneal(self, grouping: Grouping, start: Ints, until: float) -> None:
        """Search from a start until so many units are spent in all; keep the best that is met."""
        at = grouping.devices(start)
        cost = best = self.cost(start)
        best_at = at
        began, groups = self.units, len(grouping.movable)
        if self._devices == 1 or not groups:
            return
        chain, changes = self._chain(grouping, at), 0
        while self.units < until and not self._is_late():
            progress = (self.units - began) / (until - began)
            if changes == _CHAIN_HOLDS:
                chain, changes = self._chain(grouping, at), 0
            changes += 1
            # What is too large for a device need not be on the chain.
            change = self._change(grouping, at, chain[:0] if cost.excess_bytes else chain)
            new = self._try(change[grouping.group_of])
            if new.excess_bytes > cost.excess_bytes:
                continue
            if new < best:
                new = self._costs.confirm(change[grouping.group_of], new)
                if new < best:
                    best, best_at = new, change
            if new <= cost or self._is_worth_a_try(cost, new, progress, groups):
                at, cost = change, new
        found = best_at[grouping.group_of]
        self._known[found.tobytes()] = best, found

    def _is_worth_a_try(self, cost: _Cost, new: _Cost, progress: float, groups: int) -> bool:
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
            at = grouping.worth.searchsorted(self._random.random(), side="right")
            mover = grouping.movable[at]
            change[mover] = self._another(change[mover])

    def _another(self, device: np.int64) -> int:
        """Return any other device."""
        return int((device + self._random.integers(1, self._devices)) % self._devices)

    def _chain(self, grouping: Grouping, at: Ints) -> Ints:
        """Return the groups that the end of the step waits for, those apart that never move."""
        self._spend(len(grouping.group_of))
        groups = grouping.group_of[self._costs.simulator.chain_at(at[grouping.group_of])]
        groups = groups[np.isin(groups, grouping.movable)]
        is_new = np.ones(len(groups), bool)
        is_new[1:] = groups[1:] != groups[:-1]
        return groups[is_new]

    def _try(self, device: Ints) -> _Cost:
        self._spend(len(device))
        self.tried += 1
        return self._costs.guess(device)

    def _spend(self, ops: int) -> None:
        self.units += _units(ops)


def _units(ops: int) -> float:
    """Return the effort of one simulation."""
    return (ops + _OPS_PER_CALL) / OPS_PER_UNIT
