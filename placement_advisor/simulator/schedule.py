"""A schedule: where and when every op ran and every tensor crossed, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.simulator.events import carried
from placement_advisor.simulator.exposure import SeenCopy, seen_copies
from placement_advisor.simulator.intervals import by_key, length, merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op import Total
    from placement_advisor.simulator.events import OpRun, Transfer
    from placement_advisor.simulator.peak import PeakMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One simulated step.

    ``exposed_by_device`` is the time in which a device waits for copies and computes nothing.
    """

    label: str
    runs: tuple[OpRun, ...]
    transfers: tuple[Transfer, ...]
    step_ns: int
    compute_ns: Mapping[str, int]
    exposed_by_device: Mapping[str, int]
    peak_memory: Mapping[str, PeakMemory]

    @property
    def peak_memory_bytes(self) -> dict[str, int]:
        """The most that each device holds at one moment."""
        return {name: peak.size_bytes for name, peak in self.peak_memory.items()}

    @property
    def copies(self) -> tuple[SeenCopy, ...]:
        """What crosses, as a profile shows it: the hops of a collective are one copy per device."""
        return seen_copies(self.transfers)

    @property
    def waits_longest(self) -> str | None:
        """Of the devices that copies go to, the one that waits longest; None without copies."""
        targets = sorted({copy.target for copy in self.copies})
        return max(targets, key=lambda device: self.exposed_by_device[device], default=None)

    @property
    def exposed_ns(self) -> int:
        """What the device that waits longest for copies waits, computing nothing."""
        return max(self.exposed_by_device.values(), default=0)

    @property
    def under_way_ns(self) -> dict[tuple[str, str], int]:
        """Time in which a copy is under way, by source and target."""
        spans = by_key(((c.source, c.target), (c.start_ns, c.end_ns)) for c in self.copies)
        return {pair: length(merged(of_pair)) for pair, of_pair in spans.items()}

    @property
    def transfer_ns(self) -> int:
        """Time in which a copy was under way, summed over pairs of source and target."""
        return sum(self.under_way_ns.values())

    @property
    def transfer_count(self) -> int:
        """Copies per step, control signals included."""
        return len(self.copies)

    @property
    def carried(self) -> Total:
        """Bytes across; tensors of unknown size are priced at latency alone."""
        return carried(self.transfers)

    @property
    def transfer_bytes(self) -> int | None:
        """Bytes across of the tensors whose size is known; None if none is known."""
        return self.carried.amount

    @property
    def bytes_are_a_floor(self) -> bool:
        """Whether tensors of unknown size come on top of `transfer_bytes`."""
        return self.carried.is_floor

    @property
    def step_memory_bytes(self) -> dict[str, int]:
        """What each device holds at its worst moment above what stays between steps."""
        return {name: p.size_bytes - p.resident_bytes for name, p in self.peak_memory.items()}
