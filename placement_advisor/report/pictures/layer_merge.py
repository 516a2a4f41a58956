"""Fewer boxes for a picture: layers that belong together by the way data flows become one.

First each chain becomes one, if enough boxes are left to tell a model by. Then merged are, in this
order and the smallest first, layers of a chain, layers with the same neighbours on both sides, and
a layer with the only one that feeds it or that it feeds. No merging makes a loop where there was
none, and it can go on until each part of the model is one box.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A picture of fewer boxes than this share of what it may have could well show more.
_ENOUGH_SHARE = 0.4
# Fewer mergings of the best sort than this share of the boxes, and worse ones are tried at once:
# else a large model without chains would take a pass over all of it for each of them.
_WORTH_A_PASS = 0.05


def merge_to(count: int, edges: Iterable[tuple[int, int]], limit: int) -> list[list[int]]:
    """Return groups of the numbers below ``count``, as few as ``limit`` if possible.

    Edges lead from lower to higher numbers. Groups are in an order in which data can flow.
    """
    given = list(edges)
    flow = _Flow(count, given)
    if count > limit:
        whole = _Flow(count, given)
        while pairs := whole.chained():
            for one, other in pairs:
                if whole.still(one, other):
                    whole.merge(one, other)
        if len(whole.members) >= limit * _ENOUGH_SHARE:
            flow = whole
    while len(flow.members) > limit:
        before = len(flow.members)
        for find in (flow.chained, flow.twins, flow.only_neighbours, flow.first_edges):
            for one, other in find():
                if len(flow.members) > limit and flow.still(one, other):
                    flow.merge(one, other)
            if before - len(flow.members) > before * _WORTH_A_PASS:
                break
        if len(flow.members) == before:
            break
    return [sorted(flow.members[group]) for group in flow.order()]


class _Flow:
    """Groups, each named after one of its members, and who feeds whom."""

    def __init__(self, count: int, edges: Iterable[tuple[int, int]]) -> None:
        self.members = {i: [i] for i in range(count)}
        self._after: dict[int, set[int]] = {i: set() for i in range(count)}
        self._before: dict[int, set[int]] = {i: set() for i in range(count)}
        self._changed: set[int] = set()
        for one, other in edges:
            self._after[one].add(other)
            self._before[other].add(one)

    def chained(self) -> list[tuple[int, int]]:
        """Return pairs of which one feeds the other alone, and nothing else feeds that."""
        return self._smallest_first(
            (one, other)
            for one, after in self._after.items()
            if len(after) == 1
            for other in after
            if len(self._before[other]) == 1
        )

    def twins(self) -> list[tuple[int, int]]:
        """Return pairs with the same neighbours on both sides."""
        alike: dict[tuple[frozenset[int], frozenset[int]], list[int]] = defaultdict(list)
        for group in self.members:
            alike[frozenset(self._before[group]), frozenset(self._after[group])].append(group)
        return self._smallest_first(
            pair for twins in alike.values() for pair in zip(twins[::2], twins[1::2], strict=False)
        )

    def only_neighbours(self) -> list[tuple[int, int]]:
        """Return pairs in which one is all that feeds, or is fed by, the other."""
        return self._smallest_first(
            (one, other)
            for one, after in self._after.items()
            for other in after
            if len(after) == 1 or len(self._before[other]) == 1
        )

    def first_edges(self) -> list[tuple[int, int]]:
        """Return each group with the first that it feeds: no way leads from one to it by others."""
        place = {group: i for i, group in enumerate(self.order())}
        return self._smallest_first(
            (one, min(after, key=place.__getitem__)) for one, after in self._after.items() if after
        )

    def _smallest_first(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        self._changed = set()
        return sorted(
            pairs,
            key=lambda pair: (sum(len(self.members[group]) for group in pair), pair),
        )

    def still(self, one: int, other: int) -> bool:
        """Whether neither group nor what lies around it has changed since the pairs were found."""
        return not {one, other} & self._changed

    def merge(self, one: int, other: int) -> None:
        """Make two groups one."""
        around = self._before[one] | self._after[one] | self._before[other] | self._after[other]
        self._changed |= {one, other, *around}
        self.members[one] += self.members.pop(other)
        for side, opposite in ((self._before, self._after), (self._after, self._before)):
            side[one] |= side.pop(other)
            side[one] -= {one, other}
            for group in side[one]:
                opposite[group] -= {other}
                opposite[group] |= {one}

    def order(self) -> Sequence[int]:
        """Return the groups so that data flows forward, otherwise by their first members."""
        waiting = {group: len(before) for group, before in self._before.items()}
        first = {group: min(members) for group, members in self.members.items()}
        ready = [(first[group], group) for group, count in waiting.items() if not count]
        heapify(ready)
        order = []
        while ready:
            _, group = heappop(ready)
            order.append(group)
            for other in self._after[group]:
                waiting[other] -= 1
                if not waiting[other]:
                    heappush(ready, (first[other], other))
        return order
