"""Copies as a profile shows them, and the time of theirs that no compute hides.

Model: a copy is under way from when its bytes get hold of the wire until the target has received
them. What the target computes meanwhile hides it; its copy work does not. Copies that are on their
way to one target at the same moment count once. A device's *exposed* time is that in which a copy
to it is under way and it computes nothing; a step's is that of the device that waits longest.

Of a collective a profile shows one event on each device, from when that joins until it has what
all others sent: all hops that reach a device are one copy there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.simulator.intervals import by_key, length, length_outside, merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.simulator.events import OpRun, Transfer
    from placement_advisor.simulator.intervals import Interval


class SeenCopy(NamedTuple):
    """A copy as a profile shows it: a transfer, or what a collective brings to a device."""

    source: str
    target: str
    transfers: tuple[Transfer, ...]
    start_ns: int
    end_ns: int


def seen_copies(transfers: Sequence[Transfer]) -> tuple[SeenCopy, ...]:
    """Return the copies of a step, hops put together."""
    found: list[SeenCopy] = []
    hops: defaultdict[tuple[str, str], list[Transfer]] = defaultdict(list)
    joined_ns: dict[tuple[str, str], int] = {}
    for each in transfers:
        if each.collective is None:
            found.append(SeenCopy(each.source, each.target, (each,), each.start_ns, each.end_ns))
            continue
        hops[each.collective, each.target].append(each)
        key = each.collective, each.source
        joined_ns[key] = min(each.set_out_ns, joined_ns.get(key, each.set_out_ns))
    for key, of_device in hops.items():
        first_ns = min(each.start_ns for each in of_device)
        found.append(
            SeenCopy(
                source=of_device[0].source,
                target=key[1],
                transfers=tuple(of_device),
                start_ns=min(first_ns, joined_ns.get(key, first_ns)),
                end_ns=max(each.end_ns for each in of_device),
            )
        )
    return tuple(found)


def exposed_by_device(
    runs: Iterable[OpRun], copies: Iterable[SeenCopy], devices: Iterable[str]
) -> dict[str, int]:
    """Return the time in which each device waits for copies and computes nothing."""
    computing, in_flight = _computing(runs), _in_flight(copies)
    return {device: length_outside(in_flight[device], computing[device]) for device in devices}


def hidden_ns(runs: Iterable[OpRun], copies: Iterable[SeenCopy], device: str) -> int:
    """Return the time in which a copy is on its way to a device that computes."""
    spans = _in_flight(copies)[device]
    return length(merged(spans)) - length_outside(spans, _computing(runs)[device])


def _computing(runs: Iterable[OpRun]) -> defaultdict[str, list[Interval]]:
    return by_key((run.device, (run.start_ns, run.end_ns)) for run in runs)


def _in_flight(copies: Iterable[SeenCopy]) -> defaultdict[str, list[Interval]]:
    return by_key((copy.target, (copy.start_ns, copy.end_ns)) for copy in copies)
