"""Bounds and verifier against every placement of thousands of small steps.

What is asked of a placement stands in `Placement.check`, what a step takes in the simulator; both
are tested by themselves. No argument may say more than the fastest placement takes, whichever of
them is the strongest, and no forged one may be confirmed that does.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from certified import Certified, certified, verify
from placed_steps import place
from small_steps import fastest, placements, small_step

from placement_advisor.errors import PlacementError
from placement_advisor.graph.placement import placed_ops
from placement_advisor.solvers.bound_arguments import (
    AllArgument,
    CutArgument,
    LowerBound,
    PathArgument,
    WorkArgument,
)
from placement_advisor.solvers.bound_check import RefusedError
from placement_advisor.solvers.lower_bounds import (
    Step,
    longest_path,
    root_cut,
    shared_work,
    work_value_ns,
)

if TYPE_CHECKING:
    from placed_steps import PlacedStep

    from placement_advisor.solvers.bound_arguments import Argument

STEPS = 300
MORE_STEPS = 8_000
# Every kind of argument has to be met there, and be as much as the fastest placement takes.
_KINDS = (PathArgument, WorkArgument, CutArgument, AllArgument)


def refuses(told: Certified, step: PlacedStep, argument: Argument) -> bool:
    """Return whether a claim of a split that rests on this argument alone is refused."""
    overhead_ns = step.cluster.dispatch.step_overhead_ns
    bound = LowerBound(
        split_ns=overhead_ns + argument.value_ns,
        alone_ns=told.bound.alone_ns,
        arguments=(argument,),
    )
    return is_refused(replace(told, bound=bound), step)


def is_refused(told: Certified, step: PlacedStep) -> bool:
    try:
        verify(told, step.graph)
    except RefusedError:
        return True
    return False


def forged(argument: Argument, value_ns: int, step: PlacedStep, draw: random.Random) -> Argument:
    """Return an argument of that value, which shows something else than the given one."""
    names = [op.name for op in placed_ops(step.graph)]
    argument = replace(argument, value_ns=value_ns)
    if isinstance(argument, PathArgument):
        return replace(argument, ops=tuple(draw.sample(names, draw.randint(1, len(names)))))
    if isinstance(argument, WorkArgument):
        weights = {name: draw.choice((0, 1, 5)) for name in argument.weights}
        return replace(argument, weights=weights)
    if isinstance(argument, CutArgument):
        more = draw.choice((1, 5, 50))
        changed = {ends: amount + draw.choice((0, more)) for ends, amount in argument.flow.items()}
        root = draw.choice((argument.root, draw.choice(names)))
        return replace(argument, root=root, flow=draw.choice((changed, argument.flow)))
    return replace(argument, placements=0)


def check(seed: int) -> list[type[Argument]]:
    """Check one step; return the arguments that say exactly what the fastest split takes."""
    step = small_step(seed)
    told, found = certified(step), fastest(step)
    for name, step_ns in found.alone_ns.items():
        assert told.bound.alone_ns[name] <= step_ns, f"step {seed} on {name} alone"
        alone_ns = {**told.bound.alone_ns, name: step_ns + 1}
        false_bound = LowerBound(split_ns=0, alone_ns=alone_ns, arguments=())
        assert is_refused(replace(told, bound=false_bound), step), f"step {seed} on {name} alone"
    assert set(told.bound.alone_ns) == set(step.cluster.place_names())
    first = step.cluster.devices[0]
    if first.host is None:
        assert told.bound.alone_ns[first.name] == found.alone_ns[first.name], f"step {seed}"
    verify(told, step.graph)
    if found.split_ns is None:
        return []
    # Steps are so small that all placements are tried by what is tested as well.
    assert told.bound.split_ns == found.split_ns, f"step {seed}: {told.bound.arguments[0]}"
    most_ns = found.split_ns - step.cluster.dispatch.step_overhead_ns
    draw = random.Random(seed)
    for argument in told.bound.arguments:
        assert argument.value_ns <= most_ns, f"step {seed}: {argument}"
        assert not refuses(told, step, argument)
        more = replace(argument, value_ns=argument.value_ns + 1)
        assert refuses(told, step, more), f"step {seed}: {more}"
        false = forged(argument, most_ns + 1, step, draw)
        assert refuses(told, step, false), f"step {seed}: {false}"
    return [type(each) for each in told.bound.arguments if each.value_ns == most_ns]


def longest_chain_ns(step: Step) -> int:
    """Return what the longest chain takes, by trying all that go on."""
    readers: dict[int, set[int]] = {op: set() for op in range(len(step.ops))}
    for tensor in step.tensors:
        readers[tensor.producer].update(tensor.readers)

    def rest_ns(op: int) -> int:
        end_ns = min(map(step.end_ns, step.time_ns[op]))
        return min(step.time_ns[op].values()) + max([end_ns, *map(rest_ns, readers[op])])

    begin_ns = [min(map(step.begin_ns, times_ns)) for times_ns in step.time_ns]
    return max((begin_ns[op] + rest_ns(op) for op in readers), default=0)


def busiest_root_ns(step: Step) -> int:
    """Return the least work of the device that holds a group, for the group where it is most."""
    count = len(step.groups)
    busy_ns: dict[int, list[int]] = {root: [] for root in range(count)}
    for number in range(1, 2**count):
        here = {group for group in range(count) if number >> group & 1}
        work_ns = sum(step.least_ns[op] for group in here for op in step.groups[group])
        for tensor in step.tensors:
            reads_here = {step.group_of[reader] in here for reader in tensor.readers}
            if step.group_of[tensor.producer] in here:
                work_ns += step.send_ns(tensor) * (False in reads_here)
            else:
                work_ns += step.receive_ns(tensor) * (True in reads_here)
        for root in here:
            busy_ns[root].append(work_ns)
    return max(map(min, busy_ns.values()))


def test_what_arguments_leave_to_choice_is_chosen_best() -> None:
    for seed in range(STEPS):
        small = small_step(seed)
        step = Step(small.graph, small.all_costs(), small.cluster)

        assert longest_path(step).value_ns == longest_chain_ns(step), f"step {seed}"
        devices = step.cluster.device_names()
        even = {place: int(place in devices) for place in step.cluster.place_names()}
        work = shared_work(step)
        assert work.value_ns >= work_value_ns(step, even), f"step {seed}"
        assert work.value_ns == work_value_ns(step, work.weights), f"step {seed}"
        cut = root_cut(step)
        is_work = any(step.send_ns(each) + step.receive_ns(each) for each in step.tensors)
        assert (cut is None) == (step.has_hosts or not is_work), f"step {seed}"
        if cut is not None:
            begin_ns = min(map(step.begin_ns, devices))
            assert cut.value_ns == begin_ns + busiest_root_ns(step), f"step {seed}"
            assert all(cut.flow.values())


def test_no_argument_says_more_than_the_fastest_placement_takes() -> None:
    exact = [kind for seed in range(STEPS) for kind in check(seed)]

    assert set(exact) == set(_KINDS)


@pytest.mark.campaign
def test_no_argument_says_more_on_many_more_steps() -> None:
    for seed in range(STEPS, STEPS + MORE_STEPS):
        check(seed)


def test_all_and_only_placements_that_are_allowed_are_tried() -> None:
    for seed in range(60):
        graph, cluster = small_step(seed).graph, small_step(seed).cluster
        names = cluster.place_names()
        ops = [op.name for op in placed_ops(graph)]
        allowed = set()
        for chosen in product(range(len(names)), repeat=len(ops)):
            device_of = {op: names[number] for op, number in zip(ops, chosen, strict=True)}
            try:
                place(device_of).check(graph, names)
            except PlacementError:
                continue
            allowed.add(chosen)
        assert {tuple(where.tolist()) for where in placements(graph, len(names))} == allowed
