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
from certified import certified
from placed_steps import place
from small_steps import fastest, placements, small_step

from placement_advisor.bounds.arguments import (
    AllArgument,
    CutArgument,
    LowerBound,
    PathArgument,
    WorkArgument,
)
from placement_advisor.certificate import RefusedError
from placement_advisor.errors import PlacementError
from placement_advisor.placement import placed_ops
from placement_advisor.verify import verify

if TYPE_CHECKING:
    from placed_steps import PlacedStep

    from placement_advisor.bounds.arguments import Argument
    from placement_advisor.certificate import Certificate

STEPS = 500
MORE_STEPS = 20_000
# Every kind of argument has to be met there, and be as much as the fastest placement takes.
_KINDS = (PathArgument, WorkArgument, CutArgument, AllArgument)


def refuses(told: Certificate, step: PlacedStep, argument: Argument) -> bool:
    """Return whether a claim of a split that rests on this argument alone is refused."""
    overhead_ns = step.cluster.dispatch.step_overhead_ns
    bound = LowerBound(
        split_ns=overhead_ns + argument.value_ns,
        alone_ns=told.bound.alone_ns,
        arguments=(argument,),
    )
    try:
        verify(replace(told, bound=bound), step.graph)
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
    assert set(told.bound.alone_ns) == set(step.cluster.place_names())
    first = step.cluster.devices[0]
    if first.host is None:
        assert told.bound.alone_ns[first.name] == found.alone_ns[first.name], f"step {seed}"
    verify(told, step.graph)
    if found.split_ns is None:
        return []
    assert told.bound.split_ns <= found.split_ns, f"step {seed}: {told.bound.arguments[0]}"
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


def test_no_argument_says_more_than_the_fastest_placement_takes() -> None:
    exact = [kind for seed in range(STEPS) for kind in check(seed)]

    assert set(exact) == set(_KINDS)


@pytest.mark.slow
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
