"""Copy time that no compute hides."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.intervals import length_outside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.intervals import Interval
    from placement_advisor.simulate.schedule import OpRun, Transfer


def exposed_ns(runs: Sequence[OpRun], transfers: Sequence[Transfer]) -> int:
    """Return the time in which a target waits for a transfer and computes nothing.

    Transfers that are on their way to one target at the same moment count once; targets add up.
    """
    computing: defaultdict[str, list[Interval]] = defaultdict(list)
    for run in runs:
        computing[run.device].append((run.start_ns, run.end_ns))
    in_flight: defaultdict[str, list[Interval]] = defaultdict(list)
    for transfer in transfers:
        in_flight[transfer.target].append((transfer.start_ns, transfer.end_ns))
    return sum(length_outside(spans, computing[target]) for target, spans in in_flight.items())
