"""Problems of the delay model for tests, and an oracle for small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from placement_advisor.solvers.makespan.delays import Flow, delay
from placement_advisor.solvers.problem import Pool, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence


def problem(
    work: Sequence[float | None],
    edges: Sequence[tuple[int, int]] = (),
    copy_time: Sequence[float] | float = 0.0,
    *,
    devices: int = 2,
    groups: Sequence[tuple[int, ...]] | None = None,
    size_bytes: Sequence[int] | None = None,
    capacity_bytes: int | None = None,
    more_pools: Sequence[Pool] = (),
) -> Problem:
    count = len(work)
    copies = [copy_time] * count if isinstance(copy_time, float) else copy_time
    names = tuple(f"GPU:{number}" for number in range(devices))
    pool = Pool(devices=names, work=tuple(work), capacity_bytes=capacity_bytes)
    return Problem(
        ops=tuple(f"op {number}" for number in range(count)),
        edges=tuple(edges),
        copy_time=tuple(copies),
        size_bytes=tuple(size_bytes or [0] * count),
        backward=frozenset(),
        groups=tuple(groups if groups is not None else [(op,) for op in range(count)]),
        pools=(pool, *more_pools),
    )


@st.composite
def problems(draw: st.DrawFn, *, most_ops: int = 5, whole: bool = True) -> Problem:
    """Any problem: uneven pools, groups, memory, zero times, ops that some devices cannot run."""
    count = draw(st.integers(1, most_ops))
    pairs = [(i, j) for j in range(count) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=2 * count)) if pairs else []
    time = st.integers(0, 20).map(float) if whole else st.floats(0, 20)
    times = st.lists(time, min_size=count, max_size=count)
    some = st.lists(st.none() | time, min_size=count, max_size=count)
    owner = draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
    is_grouped = draw(st.booleans())
    members: dict[int, list[int]] = {}
    for op in range(count):
        members.setdefault(owner[op] if is_grouped else op, []).append(op)
    sizes = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    capacity = draw(st.none() | st.integers(0, 15))
    uneven = draw(st.booleans())
    cpu = Pool(
        devices=tuple(f"CPU:{number}" for number in range(draw(st.integers(1, 2)))),
        work=tuple(draw(times)),
        pays_for_copies=draw(st.booleans()),
    )
    return problem(
        draw(some if uneven else times),
        sorted(set(edges)),
        draw(times),
        devices=draw(st.integers(1, 2 if uneven else 3)),
        groups=[tuple(group) for group in members.values()],
        size_bytes=sizes,
        capacity_bytes=capacity,
        more_pools=[cpu] if uneven else (),
    )


def least_by_trying(task: Problem) -> float:
    """Return the least makespan of all placements and orders, infinity if none is possible.

    Ops are put behind what their device has, in order of their starts, which gives every timetable
    that does not wait for nothing. A branch ends where even free copies would make it no better.
    """
    flow = Flow.of(task)
    count = len(task.ops)
    least_work = [
        min((time for pool in task.pools if (time := pool.work[op]) is not None), default=0.0)
        for op in range(count)
    ]
    below = [0.0] * count
    for op in reversed(flow.order):
        below[op] = least_work[op] + max(
            (below[reader] for reader in flow.consumers[op]), default=0.0
        )
    devices = len(task.devices)
    best = float("inf")
    end: dict[int, float] = {}
    where: dict[int, str] = {}
    home: dict[int, str] = {}
    free = dict.fromkeys(task.devices, 0.0)
    held = dict.fromkeys(task.devices, 0)

    def go(last: tuple[float, bool, int], makespan: float) -> None:
        nonlocal best
        # No op that is left may start before the last: what is left is work for all devices.
        left = sum(least_work[op] for op in range(count) if op not in end)
        if (sum(max(last[0], time) for time in free.values()) + left) / devices >= best:
            return
        if len(end) == count:
            best = min(best, makespan)
            return
        for op in range(count):
            if op in end or any(feeder not in end for feeder in flow.feeders[op]):
                continue
            group = task.group_of[op]
            empty_seen = set()
            for pool in task.pools:
                for device in pool.devices:
                    if group in home and home[group] != device:
                        continue
                    unused = device not in home.values()
                    if unused and id(pool) in empty_seen:
                        continue
                    if unused:
                        empty_seen.add(id(pool))
                    work = pool.work[op]
                    if work is None:
                        continue
                    size = 0
                    if group not in home:
                        size = sum(task.size_bytes[member] for member in task.groups[group])
                        capacity_bytes = pool.capacity_bytes
                        if capacity_bytes is not None and held[device] + size > capacity_bytes:
                            continue
                    start = free[device]
                    for feeder in flow.feeders[op]:
                        arrival = end[feeder] + delay(task, feeder, where[feeder], device)
                        start = max(start, arrival)
                    # Of ops that start together those of no time come first: they hold up nothing.
                    turn = (start, work > 0, flow.order.index(op))
                    if turn < last or start + below[op] >= best:
                        continue
                    settled = group in home
                    old_free = free[device]
                    home[group] = where[op] = device
                    held[device] += size
                    end[op] = free[device] = start + work
                    go(turn, max(makespan, end[op]))
                    del end[op], where[op]
                    free[device] = old_free
                    held[device] -= size
                    if not settled:
                        del home[group]

    go((0.0, False, -1), 0.0)
    return best
