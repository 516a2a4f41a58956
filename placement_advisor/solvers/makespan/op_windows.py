"""When each op can run at the earliest and at the latest, and which ops have to share a device.

Model: the *head* of an op is a time before which it cannot start, its *tail* one that passes after
its end, on any devices; the *lag* of two ops is what lies at least between the end of the first and
the start of the second if they are on different devices. An input that would come too late from
another device has to be made on the op's own, one after the other with all others of which this is
true: that lengthens heads and tails where copies are long. Given a limit on the makespan, two ops
whose lag is too long for it share a device; clusters of those are as good as groups.

Ops count with the time on the device that is fastest for them, and copies with nothing if two
devices do not pay for them: what holds here holds for every placement.

Source: the bound of Papadimitriou and Yannakakis, Towards an architecture-independent analysis of
parallel algorithms (1990), https://doi.org/10.1137/0219021, with delays of any size, without copies
of ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from placement_advisor.solvers.makespan.delays import Flow
    from placement_advisor.solvers.problem import Problem

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Heads and tails by op; by pair of ops lags, and whether they share a device.

    A lag is minus infinity where no way leads from the first to the second, and infinity if they
    share a device.
    """

    head: Floats
    tail: Floats
    lag: Floats
    together: Flags


def surely_together(problem: Problem) -> Flags:
    """Return by pair of ops whether every placement has them on one device."""
    group = np.array(problem.group_of, np.int64)
    return np.asarray((group[:, None] == group[None, :]) | (len(problem.devices) == 1))


def windows(work: Floats, copy_time: Floats, flow: Flow, together: Flags) -> Windows:
    """Return heads and tails, given the least times of ops and copies and who shares a device."""
    forward = _lags(work, copy_time, flow.order, flow.feeders, together, is_reversed=False)
    backward = _lags(work, copy_time, flow.order[::-1], flow.consumers, together, is_reversed=True)
    return Windows(
        head=_heads(work, flow.order, flow.feeders, *forward),
        tail=_heads(work, flow.order[::-1], flow.consumers, *backward),
        lag=forward[0],
        together=together,
    )


def windows_below(
    work: Floats, copy_time: Floats, flow: Flow, together: Flags, limit: float
) -> Windows | None:
    """Return the windows of all timetables that end by ``limit``; None if there is none.

    Ops that have to share a device to keep the limit do so; with them, others may have to.
    """
    while True:
        found = windows(work, copy_time, flow, together)
        if _is_late(work, found, limit):
            return None
        least = (found.head + work)[:, None] + found.lag + (work + found.tail)[None, :]
        close = together | (least > limit) | (least > limit).T
        closed = _closure(close)
        if (closed == together).all():
            return found
        together = closed


def _lags(
    work: Floats,
    copy_time: Floats,
    order: Sequence[int],
    feeders: Sequence[Sequence[int]],
    together: Flags,
    *,
    is_reversed: bool,
) -> tuple[Floats, Floats]:
    """Return by pair of ops what lies between them on different devices, and on any."""
    count = len(work)
    apart = np.full((count, count), -np.inf)
    anyhow = np.full((count, count), -np.inf)
    for op in order:
        for feeder in feeders[op]:
            copy = copy_time[op if is_reversed else feeder]
            if together[feeder, op]:
                # Whatever is elsewhere than the op is elsewhere than the feeder.
                crossed = apart[:, feeder] + work[feeder]
            else:
                # On the way to the feeder, or behind it.
                crossed = np.minimum(apart[:, feeder], anyhow[:, feeder] + copy) + work[feeder]
            apart[:, op] = np.maximum(apart[:, op], crossed)
            anyhow[:, op] = np.maximum(anyhow[:, op], anyhow[:, feeder] + work[feeder])
            apart[feeder, op] = max(apart[feeder, op], copy)
            anyhow[feeder, op] = max(anyhow[feeder, op], 0.0)
        apart[:, op] = np.where(
            together[:, op] & (anyhow[:, op] >= 0), np.inf, np.maximum(apart[:, op], anyhow[:, op])
        )
    return apart, anyhow


def _heads(
    work: Floats,
    order: Sequence[int],
    feeders: Sequence[Sequence[int]],
    apart: Floats,
    anyhow: Floats,
) -> Floats:
    """Return for each op the least time at which all its inputs can be there."""
    head = np.zeros(len(work))
    for op in order:
        if not feeders[op]:
            continue
        before = np.flatnonzero(anyhow[:, op] >= 0)
        before = before[np.argsort(head[before], kind="stable")]
        there = head[before] + work[before] + apart[before, op]
        time = (head[before] + work[before] + anyhow[before, op]).max()
        while (late := there > time).any():
            # These come too late from elsewhere: the op's own device runs them one by one.
            mine = before[late]
            rest = np.cumsum(work[mine][::-1])[::-1]
            way = np.minimum.accumulate(anyhow[mine, op][::-1])[::-1]
            done = (head[mine] + rest + way).max()
            if done <= time:
                break
            soonest = there[late].min()
            time = min(done, soonest)
            if done <= soonest:
                break
        head[op] = time
    return head


def _is_late(work: Floats, found: Windows, limit: float) -> bool:
    """Whether an op, or one device with all ops of a cluster, cannot end by the limit."""
    if (found.head + work + found.tail > limit).any():
        return True
    for first in np.flatnonzero(found.together.argmax(axis=1) == np.arange(len(work))):
        cluster = np.flatnonzero(found.together[first])
        ready = np.sort(found.head[cluster])
        for start in ready:
            later = cluster[found.head[cluster] >= start]
            later = later[np.argsort(-found.tail[later], kind="stable")]
            if (start + np.cumsum(work[later]) + found.tail[later]).max() > limit:
                return True
    return False


def _closure(close: Flags) -> Flags:
    """Return the pairs that are linked by any number of close pairs."""
    label = np.arange(len(close))
    while True:
        least = np.where(close, label[None, :], len(close)).min(axis=1)
        least = least[least]
        if (least == label).all():
            return np.asarray(label[:, None] == label[None, :])
        label = least
