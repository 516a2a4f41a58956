"""A schedule: where and when every op ran and every tensor crossed, in simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """One run of an op."""

    op: str
    device: str
    ready_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One tensor (or control signal, port -1) on its way to another device."""

    producer: str
    port: int
    source: str
    target: str
    size_bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One simulated step.

    ``exposed_ns`` is the copy time during which the target computed nothing, by (source, target).
    ``unknown_bytes`` counts copied tensors whose size is unknown; they are priced at latency alone.
    """

    label: str
    runs: tuple[OpRun, ...]
    transfers: tuple[Transfer, ...]
    step_ns: int
    compute_ns: Mapping[str, int]
    exposed_ns: int
    peak_memory_bytes: Mapping[str, int]
    unknown_bytes: int

    @property
    def transfer_ns(self) -> int:
        """Time of all copies; copies at the same moment count twice."""
        return sum(transfer.end_ns - transfer.start_ns for transfer in self.transfers)

    @property
    def transfer_count(self) -> int:
        """Copies per step, control signals included."""
        return len(self.transfers)

    @property
    def transfer_bytes(self) -> int:
        """Bytes across, of the tensors whose size is known."""
        return sum(transfer.size_bytes for transfer in self.transfers)
