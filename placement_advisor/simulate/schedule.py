"""A schedule: where and when every op ran and every tensor crossed, in simulated time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph import Role
from placement_advisor.intervals import length, merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph import OpGraph
    from placement_advisor.intervals import Interval
    from placement_advisor.placement import Placement


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
        """Time in which a copy was under way, summed over pairs of source and target."""
        pairs: defaultdict[tuple[str, str], list[Interval]] = defaultdict(list)
        for transfer in self.transfers:
            pairs[transfer.source, transfer.target].append((transfer.start_ns, transfer.end_ns))
        return sum(length(merged(spans)) for spans in pairs.values())

    @property
    def transfer_count(self) -> int:
        """Copies per step, control signals included."""
        return len(self.transfers)

    @property
    def transfer_bytes(self) -> int:
        """Bytes across, of the tensors whose size is known."""
        return sum(transfer.size_bytes for transfer in self.transfers)

    def check(self, graph: OpGraph, placement: Placement) -> None:
        """Check that this is a schedule of the graph under the placement.

        Every op but constants ran once, where it was placed and after its inputs were there; ops
        of one device did not overlap; every tensor that another device reads crossed to it once,
        and nothing else crossed.

        Raises:
            ValueError: what is wrong, by name.
        """
        run_of = {run.op: run for run in self.runs}
        placed = {op.name for op in graph.ops if op.role is not Role.CONSTANT}
        if run_of.keys() != placed or len(self.runs) != len(placed):
            odd = sorted(run_of.keys() ^ placed) or "some op"
            raise ValueError(f"not every op ran exactly once: {odd}")
        self._check_devices(placement)
        transfer_of = {(t.producer, t.port, t.target): t for t in self.transfers}
        if len(transfer_of) != len(self.transfers):
            raise ValueError("a tensor crossed to one device twice")
        unread = set(transfer_of)
        for edge in graph.edges:
            if not {edge.producer, edge.consumer} <= placed:
                continue
            producer, consumer = run_of[edge.producer], run_of[edge.consumer]
            there_ns = producer.end_ns
            if producer.device != consumer.device:
                key = (edge.producer, edge.port, consumer.device)
                if key not in transfer_of:
                    raise ValueError(f"{edge.producer!r}:{edge.port} never reached {key[-1]!r}")
                unread.discard(key)
                transfer = transfer_of[key]
                if not producer.end_ns <= transfer.start_ns <= transfer.end_ns:
                    raise ValueError(f"{edge.producer!r}:{edge.port} crossed before it was there")
                there_ns = transfer.end_ns
            if consumer.ready_ns < there_ns:
                raise ValueError(f"{edge.consumer!r} did not wait for {edge.producer!r}")
        if unread:
            raise ValueError(f"crossed, but nobody reads it there: {sorted(unread)}")

    def _check_devices(self, placement: Placement) -> None:
        last_end_ns: dict[str, int] = {}
        for run in sorted(self.runs, key=lambda run: (run.start_ns, run.end_ns)):
            if run.device != placement.device_of[run.op]:
                raise ValueError(f"{run.op!r} ran on {run.device!r}, where it was not placed")
            if not run.ready_ns <= run.start_ns <= run.end_ns:
                raise ValueError(f"{run.op!r} started before it was ready, or ended before that")
            if run.start_ns < last_end_ns.get(run.device, 0):
                raise ValueError(f"{run.op!r} overlaps another op on {run.device!r}")
            last_end_ns[run.device] = run.end_ns
