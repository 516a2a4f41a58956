"""What devices did in a recorded profile, whatever wrote it: spans by use, copies, and rows.

A *use* is what a device's time goes to: compute, copies of several kinds, collectives. Copies keep
who sent what to whom; of all else only the spans and the rows of the activity table are kept, so
that a profile of millions of kernels stays small.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.profile.spans import Spans, union
from placement_advisor.profile.timeline.copy_kinds import CopyKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.waiting import Wait

    Ints = NDArray[np.int64]

# Ends of copies that are no devices.
HOST = "host"
UNKNOWN_END = "unknown"
COLLECTIVE_END = "collective"
# The size of a copy that does not give it.
UNKNOWN_BYTES = -1


class Use(StrEnum):
    """What time of a device goes to; the value is its column in reports."""

    COMPUTE = "compute"
    PEER = "PtoP"
    HOST = "host copies"
    WITHIN = "DtoD in card"
    COLLECTIVE = "collectives"
    UNCLASSIFIED = "unclassified"


USE_OF: Mapping[CopyKind | None, Use] = {
    None: Use.COMPUTE,
    CopyKind.PEER: Use.PEER,
    CopyKind.WORKER: Use.PEER,
    CopyKind.HOST_TO_DEVICE: Use.HOST,
    CopyKind.DEVICE_TO_HOST: Use.HOST,
    CopyKind.HOST_TO_HOST: Use.HOST,
    CopyKind.DEVICE_TO_DEVICE: Use.WITHIN,
    CopyKind.COLLECTIVE: Use.COLLECTIVE,
    CopyKind.UNCLASSIFIED: Use.UNCLASSIFIED,
}


class Route(NamedTuple):
    """Whence, whither, and how something was copied."""

    source: str
    target: str
    kind: CopyKind


def gpu_route(kind: CopyKind, here: str, *, sender: str | None, receiver: str | None) -> Route:
    """Return the way of a copy that the GPU ``here`` lists; ends that it does not say are None."""
    # Some tools spell a copy to a peer like one within the card; the destination tells.
    if kind is CopyKind.DEVICE_TO_DEVICE and receiver not in (None, here):
        kind = CopyKind.PEER
    ends = {
        CopyKind.PEER: (sender or here, receiver or UNKNOWN_END),
        CopyKind.HOST_TO_DEVICE: (HOST, here),
        CopyKind.DEVICE_TO_HOST: (here, HOST),
        CopyKind.HOST_TO_HOST: (HOST, HOST),
        CopyKind.DEVICE_TO_DEVICE: (here, here),
        CopyKind.COLLECTIVE: (here, COLLECTIVE_END),
    }
    return Route(*ends.get(kind, (here, UNKNOWN_END)), kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """All copies on one route, in order of the profile; ``tensor`` are places among ``tensors``.

    A size that the profile does not give is `UNKNOWN_BYTES`, a tensor that it does not name -1.
    """

    spans: Spans
    size_bytes: Ints
    tensor: Ints


@dataclass(slots=True)
class Row:
    """One row of the activity table: how often, and how long in all, at least and at most."""

    calls: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0

    def add(self, calls: int, total_ns: int, min_ns: int, max_ns: int) -> None:
        """Count some more runs, at least one."""
        self.min_ns = min(self.min_ns, min_ns) if self.calls else min_ns
        self.max_ns = max(self.max_ns, max_ns)
        self.calls += calls
        self.total_ns += total_ns

    def add_each(self, took_ns: Ints) -> None:
        """Count runs that took so long each, at least one."""
        self.add(len(took_ns), int(took_ns.sum()), int(took_ns.min()), int(took_ns.max()))


def widen(steps: dict[int, tuple[int, int]], step: int, start_ns: int, end_ns: int) -> None:
    """Let a step, by its number, reach from no later than a start to no sooner than an end."""
    known_start, known_end = steps.get(step, (start_ns, end_ns))
    steps[step] = min(start_ns, known_start), max(end_ns, known_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded profile.

    ``uses`` has the disjoint spans of each device by use, ``copied`` the copies by route,
    ``rows`` those of the activity table by name and use. ``step_starts`` cut the time of devices
    into steps; there is one moment more than steps, none if the profile shows no steps. ``waits``
    say why devices computed nothing, where the profile shows that.
    ``notes`` are what a reader should know.
    """

    path: str
    devices: tuple[str, ...]
    uses: Mapping[str, Mapping[Use, Spans]]
    copied: Mapping[Route, Copied]
    tensors: tuple[str, ...]
    rows: Mapping[tuple[str, Use], Row]
    step_starts: tuple[int, ...]
    steps_from: str
    waits: tuple[Wait, ...] = ()
    notes: tuple[str, ...] = ()


class TraceBuilder:
    """A trace in the making."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self._devices: dict[str, None] = {}
        self._uses: defaultdict[tuple[str, Use], list[Spans]] = defaultdict(list)
        self._copied: defaultdict[Route, list[Copied]] = defaultdict(list)
        self._tensors: dict[str, int] = {}
        self._rows: defaultdict[tuple[str, Use], Row] = defaultdict(Row)

    def device(self, name: str) -> None:
        """Add a device that may have done nothing."""
        self._devices.setdefault(name)

    def used(self, device: str, use: Use, spans: Spans) -> None:
        """Add what a device spent on a use."""
        self._uses[device, use].append(union([spans]))

    def row(self, name: str, use: Use) -> Row:
        """Return a row of the activity table, to add runs to."""
        return self._rows[name, use]

    def tensor(self, name: str | None) -> int:
        """Return the place of a tensor among the trace's, -1 for none."""
        return -1 if name is None else self._tensors.setdefault(name, len(self._tensors))

    def copies(self, route: Route, copied: Copied) -> None:
        """Add copies on a route; both ends are busy with them if they are devices."""
        self._copied[route].append(copied)
        for end in dict.fromkeys((route.source, route.target)):
            if end in self._devices:
                self.used(end, USE_OF[route.kind], copied.spans)

    def build(
        self,
        path: str,
        step_starts: Sequence[int],
        steps_from: str,
        waits: tuple[Wait, ...] = (),
    ) -> Trace:
        """Return the trace; what no time passes in is no step."""
        moments = sorted(set(step_starts))
        has_steps = len(moments) > 1
        return Trace(
            path=path,
            devices=tuple(self._devices),
            uses={
                device: {use: union(self._uses.get((device, use), ())) for use in Use}
                for device in self._devices
            },
            copied={route: _joined(parts) for route, parts in sorted(self._copied.items())},
            tensors=tuple(self._tensors),
            rows=dict(self._rows),
            step_starts=tuple(moments) if has_steps else (),
            steps_from=steps_from if has_steps else "none",
            waits=waits,
            notes=tuple(self.notes),
        )


def _joined(parts: Sequence[Copied]) -> Copied:
    if len(parts) == 1:
        return parts[0]
    return Copied(
        spans=Spans(
            np.concatenate([part.spans.start for part in parts]),
            np.concatenate([part.spans.end for part in parts]),
        ),
        size_bytes=np.concatenate([part.size_bytes for part in parts]),
        tensor=np.concatenate([part.tensor for part in parts]),
    )
