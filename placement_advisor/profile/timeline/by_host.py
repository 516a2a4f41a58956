"""Copies from one GPU to another by way of the host, joined from their two halves.

GPUs that cannot reach each other copy a tensor to the host, and from there on. The halves are told
by the tensor that both name and by their size, which is equal or given by neither. Where several
could belong together, the first that came to the host is the first to go on, as nothing tells them
apart. No half that starts before the other has ended belongs to it.

Left out: copies that name no tensor; GPUs of several hosts, whose clocks are not aligned.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.device_trace import Copied, Route

    Ints = NDArray[np.int64]

# Rows that are Python's at a time.
_CHUNK = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHost:
    """Copies from a GPU to another by way of the host; both halves are on routes of their own.

    ``size_bytes`` are those of the copies that give their size, each counted once.
    """

    source: str
    target: str
    count: int
    of_unknown_size: int
    size_bytes: int


def copies_by_host(copied: Mapping[Route, Copied]) -> tuple[ByHost, ...]:
    """Return the copies between each two GPUs that went by way of the host."""
    devices: dict[str, int] = {}
    hosts: dict[str, int] = {}
    halves = []
    for route, of_route in copied.items():
        onward = route.kind is CopyKind.HOST_TO_DEVICE
        if not onward and route.kind is not CopyKind.DEVICE_TO_HOST:
            continue
        device = route.target if onward else route.source
        moments = of_route.spans.start if onward else of_route.spans.end
        # Of several hosts, the names of devices begin with theirs.
        host = hosts.setdefault(device.rpartition("/")[0], len(hosts))
        facts = (host, moments, onward, devices.setdefault(device, len(devices)))
        columns = np.broadcast_arrays(of_route.tensor, of_route.size_bytes, *facts)
        halves.append(np.stack(columns)[:, of_route.tensor >= 0])
    if not halves:
        return ()
    counts = Counter(_pairs(np.concatenate(halves, axis=1)))
    names = tuple(devices)
    found = []
    for source, target in sorted({(source, target) for source, target, _ in counts}):
        sizes = {size: n for (a, b, size), n in counts.items() if (a, b) == (source, target)}
        found.append(
            ByHost(
                source=names[source],
                target=names[target],
                count=sum(sizes.values()),
                of_unknown_size=sizes.pop(UNKNOWN_BYTES, 0),
                size_bytes=sum(size * n for size, n in sizes.items()),
            )
        )
    return tuple(found)


def _pairs(halves: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield source, target and size of each copy; the columns of halves are in no order.

    Rows are tensor, size, host, the moment (the end of a copy to the host, the start of one from
    it), whether it goes on from the host, and the device.
    """
    # At one moment ends come before starts.
    order = np.lexsort(halves[4::-1])
    same: tuple[int, ...] = ()
    # When what waits on the host came there, by its source.
    arrived: dict[int, deque[int]] = {}
    for start in range(0, len(order), _CHUNK):
        rows = halves[:, order[start : start + _CHUNK]].T.tolist()
        for tensor, size_bytes, host, moment_ns, onward, device in rows:
            if same != (tensor, size_bytes, host):
                same, arrived = (tensor, size_bytes, host), {}
            if not onward:
                arrived.setdefault(device, deque()).append(moment_ns)
                continue
            sources = [source for source in arrived if source != device and arrived[source]]
            if sources:
                first = min(sources, key=lambda source: arrived[source][0])
                arrived[first].popleft()
                yield first, device, size_bytes
