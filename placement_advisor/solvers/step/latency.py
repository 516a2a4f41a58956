"""The placement with the shortest simulated step that fits into the devices' memory.

Starts are placements that others propose. The local search goes on from them over layers first,
then over what a layer computes apart from its *state*: its variables, their updates, and what is
computed for these alone, such as the gradient of its weights; then over single ops and what has to
stay with them. So what it returns is never worse than any start that fits.

Memory: what a device holds at its peak is known for a schedule alone, and takes a hundred times as
long to find as the step time. On the way a peak is estimated: as what variables hold, and the part
of all tensors made there that is held at once when everything runs on one device. Only where the
estimate comes near the limit is a placement that would be the best looked at in full, and so is the
last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.graph.placement import Placement
from placement_advisor.graph.roles import TRAINING_ROLES
from placement_advisor.simulator.peak import shortages
from placement_advisor.solvers.coarse import group_ops
from placement_advisor.solvers.step.local_search import Cost, improve

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from placement_advisor.graph.op_graph import Op, OpGraph
    from placement_advisor.simulator.simulator import Simulator
    from placement_advisor.solvers.effort import Effort, Stop

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

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
    graph, cluster = simulator.graph, simulator.cluster
    names = cluster.place_names()
    for start in starts:
        start.check(graph, names)
    number = {name: i for i, name in enumerate(names)}
    time_ns = dict(zip((op.name for op in simulator.ops), simulator.most_ns(), strict=True))
    costs = _Costs(simulator)
    numbers = [_numbers(simulator, start, number) for start in starts]
    keys: tuple[Mapping[str, Hashable], ...] = (
        layer_of,
        state_apart(graph, simulator.ops, layer_of),
        {},
    )
    groupings = [group_ops(graph, simulator.ops, each, time_ns, fixed) for each in keys]
    levels = tuple(zip(groupings, _SHARES, strict=True))
    found = improve(costs, numbers, levels, len(names), effort)
    if costs.excess_bytes(found.device) > found.cost.excess_bytes:
        costs.trust_no_estimate()
        found = improve(costs, numbers, levels, len(names), effort)
    placement = _placement(simulator, found.device, names)
    return LeastStep(
        placement=placement,
        step_ns=found.cost.step_ns,
        excess_bytes=found.cost.excess_bytes,
        tried=found.tried,
        units=found.units,
        stopped_by=found.stopped_by,
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


def _numbers(simulator: Simulator, placement: Placement, number: Mapping[str, int]) -> Ints:
    return np.array([number[placement.device_of[op.name]] for op in simulator.ops], np.int64)


def _placement(simulator: Simulator, device: Ints, names: Sequence[str]) -> Placement:
    device_of = {op.name: names[i] for op, i in zip(simulator.ops, device.tolist(), strict=True)}
    return Placement(label=FAMILY, family=FAMILY, device_of=device_of, rationale="searched")


class _Costs:
    """Simulates steps, and tells what does not fit."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._names = simulator.cluster.place_names()
        self._places = simulator.cluster.places()
        limits = [place.memory_bytes for place in self._places]
        self._limit = np.array([np.inf if limit is None else limit for limit in limits])
        self._resident = np.array([float(op.parameter_bytes) for op in simulator.ops])
        self._made = np.array(
            [float(sum(size or 0 for size in op.output_bytes)) for op in simulator.ops]
        )
        self._share_held, self._trusted = 1.0, 1.0
        if np.isfinite(self._limit).any():
            self._share_held, self._trusted = self._share_held_alone(), _TRUSTED

    def guess(self, device: Ints, /) -> Cost:
        held = self._held(device, self._share_held)
        excess = float(np.maximum(held - self._limit, 0).sum())
        return Cost(excess_bytes=round(excess), step_ns=self._simulator.step_ns_at(device))

    def confirm(self, device: Ints, guessed: Cost, /) -> Cost:
        if (self._held(device, self._share_held) <= self._trusted * self._limit).all():
            return guessed
        return Cost(excess_bytes=self.excess_bytes(device), step_ns=guessed.step_ns)

    def chain(self, device: Ints, /) -> Ints:
        return self._simulator.chain_at(device)

    def excess_bytes(self, device: Ints) -> int:
        """Return how many bytes of the step do not fit at its peaks."""
        if np.isinf(self._limit).all():
            return 0
        schedule = self._simulator.schedule(_placement(self._simulator, device, self._names))
        short = shortages(schedule.peak_memory, self._places)
        return sum(each.missing_bytes for each in short)

    def trust_no_estimate(self) -> None:
        """Look at every placement in full from now on that would be the best."""
        self._trusted = 0.0

    def _held(self, device: Ints, share: float) -> Floats:
        bytes_of = self._resident + share * self._made
        return np.bincount(device, bytes_of, len(self._limit)).astype(np.float64)

    def _share_held_alone(self) -> float:
        """Return how much of all tensors is held at once in a step on the first device."""
        alone = np.zeros(len(self._simulator.ops), np.int64)
        schedule = self._simulator.schedule(_placement(self._simulator, alone, self._names))
        peak = schedule.peak_memory[self._names[0]]
        made = float(self._made.sum())
        return max(0, peak.size_bytes - peak.resident_bytes) / made if made else 0.0
