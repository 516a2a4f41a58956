"""A problem of the delay model as arrays, for compiled loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.solvers.flat_rows import flat_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.solvers.makespan.delays import Flow
    from placement_advisor.solvers.problem import Problem

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_NO_LIMIT_BYTES = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayArrays:
    """Ops, groups and devices by number.

    ``work`` is by pool and op, infinite where it cannot run. The feeders of op ``i`` stand in
    ``feeders`` from ``feeder_start[i]`` to before ``feeder_start[i + 1]``, and so for the others.
    """

    work: Floats
    copy_time: Floats
    pool_of_device: Ints
    pays: NDArray[np.bool_]
    capacity_bytes: Ints
    group_of: Ints
    group_bytes: Ints
    member_start: Ints
    members: Ints
    feeder_start: Ints
    feeders: Ints
    consumer_start: Ints
    consumers: Ints

    @classmethod
    def of(cls, problem: Problem, flow: Flow) -> DelayArrays:
        """Return the arrays of a problem."""
        pools = [number for number, pool in enumerate(problem.pools) for _ in pool.devices]
        limits = [problem.pools[pool].capacity_bytes for pool in pools]
        sizes = [sum(problem.size_bytes[op] for op in group) for group in problem.groups]
        work = [[np.inf if time is None else time for time in pool.work] for pool in problem.pools]
        member_start, members = flat_rows(problem.groups)
        feeder_start, feeders = flat_rows(flow.feeders)
        consumer_start, consumers = flat_rows(flow.consumers)
        return cls(
            work=np.array(work, np.float64).reshape(len(problem.pools), len(problem.ops)),
            copy_time=np.array(problem.copy_time, np.float64),
            pool_of_device=np.array(pools, np.int64),
            pays=np.array([problem.pools[pool].pays_for_copies for pool in pools], np.bool_),
            capacity_bytes=np.array(
                [_NO_LIMIT_BYTES if limit is None else limit for limit in limits], np.int64
            ),
            group_of=np.array(problem.group_of, np.int64),
            group_bytes=np.array(sizes, np.int64),
            member_start=member_start,
            members=members,
            feeder_start=feeder_start,
            feeders=feeders,
            consumer_start=consumer_start,
            consumers=consumers,
        )
