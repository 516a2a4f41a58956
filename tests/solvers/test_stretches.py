"""Stages of a pipeline: the cut of one order that loads the fullest device least."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.solvers.pipeline_stages import Pool, StageProblem, best_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

_TIME = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25, 7.0])


def chain(*work: float, copy_time: float = 1.0, devices: int = 2) -> StageProblem:
    """Return ops that each read the one before, on devices that are alike."""
    count = len(work)
    return StageProblem(
        ops=tuple(f"op{i}" for i in range(count)),
        edges=tuple((i, i + 1) for i in range(count - 1)),
        copy_time=(copy_time,) * count,
        size_bytes=(1,) * count,
        groups=tuple((i,) for i in range(count)),
        pools=(Pool(devices=tuple(f"d{i}" for i in range(devices)), work=work),),
    )


@st.composite
def problems(draw: DrawFn) -> StageProblem:
    """Draw a small problem: uneven pools, groups of one op or more, memory that may not suffice."""
    count = draw(st.integers(1, 6))
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = sorted({(a, b) for a, b in draw(st.lists(ends, max_size=8)) if a < b})
    groups: dict[int, list[int]] = {}
    for op in range(count):
        groups.setdefault(draw(st.integers(0, count - 1)), []).append(op)
    pools = [
        Pool(
            devices=tuple(f"pool{i}:{k}" for k in range(draw(st.integers(1, 2)))),
            work=tuple(draw(st.lists(_TIME, min_size=count, max_size=count))),
            capacity_bytes=draw(st.one_of(st.none(), st.integers(0, 12))),
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    return StageProblem(
        ops=tuple(f"op{i}" for i in range(count)),
        edges=tuple(edges),
        copy_time=tuple(draw(_TIME) for _ in range(count)),
        size_bytes=tuple(draw(st.integers(0, 4)) for _ in range(count)),
        groups=tuple(map(tuple, groups.values())),
        pools=tuple(pools),
    )


def largest_load(problem: StageProblem, device_of: Sequence[str]) -> float | None:
    """Return the load of the fullest device, given that of each group; None if it does not fit."""
    of_op = {
        op: device for group, device in zip(problem.groups, device_of, strict=True) for op in group
    }
    loads = []
    for pool in problem.pools:
        for device in pool.devices:
            held = [op for op, where in of_op.items() if where == device]
            needed = sum(problem.size_bytes[op] for op in held)
            if pool.capacity_bytes is not None and needed > pool.capacity_bytes:
                return None
            load = sum(pool.work[op] for op in held)
            for op, home in of_op.items():
                readers = {of_op[b] for a, b in problem.edges if a == op} - {home}
                if readers and (device == home or device in readers):
                    load += problem.copy_time[op]
            loads.append(load)
    return max(loads)


def best_by_trying(problem: StageProblem) -> float | None:
    """Return the least largest load of all ways to cut the groups in their order."""
    devices = [device for pool in problem.pools for device in pool.devices]
    count = len(problem.groups)
    found = []
    for used in range(1, min(count, len(devices)) + 1):
        for cuts in combinations(range(1, count), used - 1):
            bounds = [0, *cuts, count]
            for chosen in permutations(devices, used):
                device_of = [
                    device
                    for device, (first, last) in zip(chosen, pairwise(bounds), strict=True)
                    for _ in range(first, last)
                ]
                found.append(largest_load(problem, device_of))
    return min((load for load in found if load is not None), default=None)


def test_a_chain_is_cut_where_the_larger_load_is_least() -> None:
    # 2, 3 | 6 with a tensor of 1 that both pay for: 6 and 7.
    problem = chain(2.0, 3.0, 6.0)
    assert best_stages(problem, range(3)) == ("d0", "d0", "d1")
    assert largest_load(problem, ("d0", "d0", "d1")) == 7.0


@given(problem=problems())
def test_no_cut_loads_the_fullest_device_less(problem: StageProblem) -> None:
    device_of = best_stages(problem, range(len(problem.groups)))
    best = best_by_trying(problem)
    if device_of is None:
        assert best is None
    else:
        assert largest_load(problem, device_of) == pytest.approx(best)


def test_times_and_sizes_are_one_for_each_op() -> None:
    # Compiled code goes by the number of an op, without a look at where a list ends.
    two = chain(1.0, 1.0)
    with pytest.raises(ValueError, match="one for each op"):
        replace(two, copy_time=(1.0,))
    with pytest.raises(ValueError, match="one for each op"):
        replace(two, size_bytes=(1, 1, 1))
    with pytest.raises(ValueError, match="one for each op"):
        replace(two, pools=(*two.pools, Pool(devices=("other",), work=(1.0,))))
