"""Load problems for tests: drawn ones, and what brute force says of them."""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from placement_advisor.solvers.problem import Pool, Problem
from placement_advisor.solvers.throughput.loads import largest_load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import DrawFn

_TIME = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.25, 7.0])


def chain(*work: float, copy_time: float = 1.0, devices: int = 2) -> Problem:
    """Return ops that each read the one before, on devices that are alike."""
    count = len(work)
    return Problem(
        ops=tuple(f"op{i}" for i in range(count)),
        edges=tuple((i, i + 1) for i in range(count - 1)),
        copy_time=(copy_time,) * count,
        size_bytes=(1,) * count,
        backward=frozenset(),
        groups=tuple((i,) for i in range(count)),
        pools=(Pool(devices=tuple(f"d{i}" for i in range(devices)), work=work),),
    )


@st.composite
def load_problems(draw: DrawFn) -> Problem:
    """Draw a small problem: uneven pools, groups, both passes, memory that may not suffice."""
    count = draw(st.integers(1, 6))
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = sorted({(a, b) for a, b in draw(st.lists(ends, max_size=8)) if a < b})
    first_backward = draw(st.integers(1, count))
    color = draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
    groups: dict[int, list[int]] = {}
    for op, number in enumerate(color):
        groups.setdefault(number, []).append(op)
    sizes = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    pools = []
    for i in range(draw(st.integers(1, 2))):
        names = tuple(f"pool{i}:{k}" for k in range(draw(st.integers(1, 2))))
        work = st.lists(st.one_of(_TIME, _TIME, st.none()), min_size=count, max_size=count)
        pools.append(
            Pool(
                devices=names,
                work=tuple(draw(work)),
                capacity_bytes=draw(st.one_of(st.none(), st.integers(0, 12))),
                pays_for_copies=draw(st.booleans()),
            )
        )
    return Problem(
        ops=tuple(f"op{i}" for i in range(count)),
        edges=tuple(edges),
        copy_time=tuple(draw(_TIME) for _ in range(count)),
        size_bytes=tuple(sizes),
        backward=frozenset(range(first_backward, count)),
        groups=tuple(map(tuple, groups.values())),
        pools=tuple(pools),
    )


def placements(problem: Problem) -> Iterator[tuple[str, ...]]:
    """Yield the device of each group in every placement that fits."""
    for device_of in product(problem.devices, repeat=len(problem.groups)):
        if fits(problem, device_of):
            yield device_of


def fits(problem: Problem, device_of: tuple[str, ...]) -> bool:
    """Return whether every group can run where it is, with enough memory for all."""
    held = problem.held_bytes(device_of)
    return all(
        pool.work[op] is not None
        for group, device in zip(problem.groups, device_of, strict=True)
        for op in group
        for pool in (problem.pool_of[device],)
    ) and all(
        (room := problem.pool_of[device].capacity_bytes) is None or needed <= room
        for device, needed in held.items()
    )


def is_contiguous(problem: Problem, device_of: tuple[str, ...]) -> bool:
    """Return whether some order of the devices is a pipeline for each pass."""
    for against in (False, True):
        for order in permutations(problem.devices):
            stage = [order.index(device_of[group]) for group in problem.group_of]
            steps = [
                (stage[b] - stage[a]) * (-1 if against and a in problem.backward else 1)
                for a, b in problem.edges
                if (a in problem.backward) == (b in problem.backward)
            ]
            if all(step >= 0 for step in steps):
                return True
    return False


def brute_force(problem: Problem, *, contiguous: bool) -> float | None:
    """Return the least largest load of all placements, None if there is none."""
    return min(
        (
            largest_load(problem, device_of)
            for device_of in placements(problem)
            if not contiguous or is_contiguous(problem, device_of)
        ),
        default=None,
    )
