"""Copy time that no compute hides, and copy time that is hidden.

Model: a copy is under way from when its bytes get hold of the wire until the target has received
them. What the target computes meanwhile hides it; its copy work does not. Transfers that are on
their way to one target at the same moment count once; targets add up.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.intervals import length, length_outside, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.intervals import Interval
    from placement_advisor.simulator.schedule import OpRun, Transfer


def exposed_ns(runs: Sequence[OpRun], transfers: Sequence[Transfer]) -> int:
    """Return the time in which a target waits for a transfer and computes nothing."""
    computing: defaultdict[str, list[Interval]] = defaultdict(list)
    for run in runs:
        computing[run.device].append((run.start_ns, run.end_ns))
    in_flight = _in_flight(transfers)
    return sum(length_outside(spans, computing[target]) for target, spans in in_flight.items())


def hidden_ns(runs: Sequence[OpRun], transfers: Sequence[Transfer]) -> int:
    """Return the time in which a transfer is on its way to a target that computes."""
    whole = sum(length(merged(spans)) for spans in _in_flight(transfers).values())
    return whole - exposed_ns(runs, transfers)


def _in_flight(transfers: Sequence[Transfer]) -> dict[str, list[Interval]]:
    in_flight: defaultdict[str, list[Interval]] = defaultdict(list)
    for transfer in transfers:
        in_flight[transfer.target].append((transfer.start_ns, transfer.end_ns))
    return in_flight
