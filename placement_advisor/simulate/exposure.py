"""Copy time that no compute hides."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.simulate.schedule import OpRun, Transfer

# Start and end in ns.
_Span = tuple[int, int]


def exposed_ns(runs: Sequence[OpRun], transfers: Sequence[Transfer]) -> int:
    """Return the time in which a target waits for a transfer and computes nothing.

    Transfers that are on their way to one target at the same moment count once; targets add up.
    The runs stand in the order in which each device made them.
    """
    computing: defaultdict[str, list[_Span]] = defaultdict(list)
    for run in runs:
        computing[run.device].append((run.start_ns, run.end_ns))
    in_flight: defaultdict[str, list[_Span]] = defaultdict(list)
    for transfer in transfers:
        in_flight[transfer.target].append((transfer.start_ns, transfer.end_ns))
    return sum(_outside_ns(_union(spans), computing[target]) for target, spans in in_flight.items())


def _union(spans: Iterable[_Span]) -> list[_Span]:
    merged: list[_Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _outside_ns(spans: Sequence[_Span], covers: Sequence[_Span]) -> int:
    """Return how much of ``spans`` lies outside ``covers``; both sorted and without overlap."""
    outside_ns, first = 0, 0
    for start, end in spans:
        outside_ns += end - start
        while first < len(covers) and covers[first][1] <= start:
            first += 1
        here = first
        while here < len(covers) and covers[here][0] < end:
            outside_ns -= min(end, covers[here][1]) - max(start, covers[here][0])
            here += 1
    return outside_ns
