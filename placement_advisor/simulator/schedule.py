"""A schedule: where and when every op ran and every tensor crossed, in simulated time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.graph.host_ops import host_bound
from placement_advisor.graph.op_graph import Role
from placement_advisor.simulator.events import carried
from placement_advisor.simulator.exposure import SeenCopy, seen_copies
from placement_advisor.simulator.intervals import length, merged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.partial_sums import Total
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.events import OpRun, Transfer
    from placement_advisor.simulator.intervals import Interval
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
        pairs: defaultdict[tuple[str, str], list[Interval]] = defaultdict(list)
        for copy in self.copies:
            pairs[copy.source, copy.target].append((copy.start_ns, copy.end_ns))
        return {pair: length(merged(spans)) for pair, spans in pairs.items()}

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

    def check(self, graph: OpGraph, placement: Placement, cluster: Cluster) -> None:
        """Check that this is a schedule of the graph under the placement on the cluster.

        Every op but constants ran once, where it was placed (or on that device's host, if it has
        to) and after its inputs were there; what one device did, copy work included, did not
        overlap; every tensor that another device reads crossed to it once, and nothing else
        crossed.

        Raises:
            ValueError: what is wrong, by name.
        """
        run_of = {run.op: run for run in self.runs}
        placed = {op.name for op in graph.ops if op.role is not Role.CONSTANT}
        if run_of.keys() != placed or len(self.runs) != len(placed):
            odd = sorted(run_of.keys() ^ placed) or "some op"
            raise ValueError(f"not every op ran exactly once: {odd}")
        self._check_places(graph, placement, cluster)
        self._check_devices()
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
                if not producer.end_ns <= transfer.set_out_ns <= transfer.start_ns:
                    raise ValueError(f"{edge.producer!r}:{edge.port} crossed before it was there")
                if not transfer.start_ns <= transfer.arrival_ns <= transfer.receive_work[0]:
                    raise ValueError(f"{edge.producer!r}:{edge.port} was there before it crossed")
                there_ns = transfer.end_ns
            if consumer.ready_ns < there_ns:
                raise ValueError(f"{edge.consumer!r} did not wait for {edge.producer!r}")
        if unread:
            raise ValueError(f"crossed, but nobody reads it there: {sorted(unread)}")

    def _check_places(self, graph: OpGraph, placement: Placement, cluster: Cluster) -> None:
        host_of = {d.name: (d.host, host_bound(graph, d.kind)) for d in cluster.devices if d.host}
        for run in self.runs:
            device = placement.device_of[run.op]
            host, bound = host_of.get(device, (None, frozenset()))
            if run.device != (host if run.op in bound else device):
                raise ValueError(f"{run.op!r} ran on {run.device!r}, where it was not placed")
            if not run.ready_ns <= run.start_ns <= run.end_ns:
                raise ValueError(f"{run.op!r} started before it was ready, or ended before that")

    def _check_devices(self) -> None:
        work = [(run.device, run.start_ns, run.end_ns, run.op) for run in self.runs]
        for copy in self.transfers:
            if copy.send_work_ns:
                work.append((copy.source, *copy.send_work, f"sending {copy.producer}"))
            if copy.receive_work_ns:
                work.append((copy.target, *copy.receive_work, f"receiving {copy.producer}"))
        last_end_ns: dict[str, int] = {}
        for device, start_ns, end_ns, what in sorted(work):
            if start_ns < last_end_ns.get(device, 0):
                raise ValueError(f"{what!r} overlaps another op or copy on {device!r}")
            last_end_ns[device] = end_ns
