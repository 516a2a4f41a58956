"""Which tensors a profile blames: what each took on each route, and what of it a device waited.

Model: a copy is exposed while the device that waits for it computes nothing, as in `totals`. Copies
for one device that are exposed at the same moment share it in equal parts, whether they name their
tensors or not. So what tensors take adds up to no more than what the device waited, and a small
tensor that lay ready while the device was busy takes nothing. Left out: which of the copies that
are exposed together the device needed first.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.spans import NO_SPANS, Spans, outside, shares, union
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES, Use

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.device_trace import Copied, Route, Trace

    Floats = NDArray[np.float64]


# Differences of long sums of floats are off by less; whole nanoseconds are to stay whole.
_ROUNDING_NS = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTotals:
    """All copies of a tensor on a route; ``time_ns`` adds up what each took.

    ``exposed_ns`` is its part of the time in which the device that waits computed nothing.
    ``op``, ``layer`` and ``tensor_bytes``, the size of one, are what an op graph says of it.
    """

    tensor: str
    route: Route
    count: int
    of_unknown_size: int
    size_bytes: int
    time_ns: int
    exposed_ns: int
    op: str | None = None
    layer: str | None = None
    tensor_bytes: int | None = None


def waits_for(route: Route, uses: Mapping[str, object]) -> str:
    """Return the end of a route that waits for what is copied: the target, if it is a device."""
    return route.target if route.target in uses else route.source


def computing_at(end: str, uses: Mapping[str, Mapping[Use, Spans]]) -> Spans:
    """Return when an end of a route computes; never where it is no device."""
    return uses[end][Use.COMPUTE] if end in uses else NO_SPANS


def tensor_totals(trace: Trace) -> tuple[TensorTotals, ...]:
    """Return what each tensor took on each route, what devices waited longest for first."""
    exposed_ns = _exposed(trace)
    found = []
    for route, copied in trace.copied.items():
        named = copied.tensor >= 0
        places, which = np.unique(copied.tensor[named], return_inverse=True)
        time_ns = (copied.spans.end - copied.spans.start)[named]
        known = copied.size_bytes[named] != UNKNOWN_BYTES
        size_bytes = np.where(known, copied.size_bytes[named], 0)
        columns = (None, ~known, size_bytes, time_ns, exposed_ns[route][named])
        sums = (np.bincount(which, of_each) for of_each in columns)
        for place, *figures in zip(places.tolist(), *sums, strict=True):
            count, of_unknown_size, size, time = map(int, figures[:-1])
            found.append(
                TensorTotals(
                    tensor=trace.tensors[place],
                    route=route,
                    count=count,
                    of_unknown_size=of_unknown_size,
                    size_bytes=size,
                    time_ns=time,
                    exposed_ns=int(figures[-1] + _ROUNDING_NS),
                )
            )
    return tuple(
        sorted(found, key=lambda each: (-each.exposed_ns, -each.time_ns, each.tensor, each.route))
    )


def _exposed(trace: Trace) -> dict[Route, Floats]:
    """Return, for each route, what of each copy's time is exposed and its own."""
    routes: defaultdict[str, list[Route]] = defaultdict(list)
    for route in trace.copied:
        routes[waits_for(route, trace.uses)].append(route)
    found: dict[Route, Floats] = {}
    for end, mine in routes.items():
        copied: list[Copied] = [trace.copied[route] for route in mine]
        every = Spans(
            np.concatenate([each.spans.start for each in copied]),
            np.concatenate([each.spans.end for each in copied]),
        )
        exposed = outside(union([every]), computing_at(end, trace.uses))
        ends = np.cumsum([len(each.spans.start) for each in copied])
        found |= zip(mine, np.split(shares(exposed, every), ends[:-1]), strict=True)
    return found
