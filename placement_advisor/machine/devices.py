"""The machine as the advisor sees it: devices, the links between them, and how a step is driven.

Model: a device runs one op at a time. A link is directed; a copy over it takes a latency plus its
size over the bandwidth between idle ends. Where a processor and no copy engine moves the bytes
(gRPC workers), part of that time is work of the sender and of the receiver, which their ops have
to wait for. A pair of devices without a link cannot exchange tensors. A step is driven from its
first device; others begin later, and it hears later of their end, much later on another machine.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from placement_advisor.errors import PlacementError
from placement_advisor.files.contract import What
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


# Bounds of files: far beyond what machines have, so that they catch units that were mistaken.
ShortNs = Annotated[int, Ge(0), Le(100 * NS_PER_S), What("a whole number of ns from 0 to 10^11")]
BytesPerS = Annotated[float, Ge(1e6), Le(1e15), What("a number of bytes/s from 1e+06 to 1e+15")]
_Times = Annotated[float, Ge(1), Le(100), What("a number of times from 1 to 100")]


class Basis(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One place where ops run, one at a time.

    ``name`` is what users see (``GPU:0``, ``worker:1``), ``kind`` what TensorFlow registers kernels
    for (``GPU``, ``CPU``). ``host`` names the device on which its ops without a kernel of its kind
    run, None if it runs all. A peak or size that is not known is None; ``matrix_flops_per_s`` is
    the peak of matrix products and convolutions, where special units do them, None if that is
    ``peak_flops_per_s``. ``launch_overhead_ns`` is spent on every op beside its kernel: by the
    device, or, where it ``launches_ahead``, by a thread of its host, which goes on as soon as the
    kernel is queued. ``remote_start_ns`` and ``remote_end_ns`` are those of `Dispatch` for a device
    of which they differ, None for the others. ``gpu`` is the name of its datasheet (`gpu_facts`),
    from which times of its kernels follow, None if it has none.
    """

    name: str
    kind: str
    host: str | None = None
    peak_flops_per_s: float | None = None
    matrix_flops_per_s: float | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    memory_bytes: int | None = None
    launch_overhead_ns: int = 0
    launches_ahead: bool = False
    remote_start_ns: int | None = None
    remote_end_ns: int | None = None
    gpu: str | None = None

    def bare(self) -> Device:
        """Return what it is like, wherever it stands: devices that compute alike are equal."""
        return replace(self, name="", host=None, remote_start_ns=None, remote_end_ns=None)

    def busy_ns(self, time_ns: int) -> int:
        """Return how long an op of that time keeps the device busy among others like it."""
        if self.launches_ahead:
            return max(time_ns, self.launch_overhead_ns)
        return time_ns + self.launch_overhead_ns

    def scaled(self, *, copies: float, launches: float) -> Device:
        """Return the device with its launch overhead multiplied, and what it takes to reach it."""
        return replace(
            self,
            launch_overhead_ns=round(self.launch_overhead_ns * launches),
            remote_start_ns=_scaled(self.remote_start_ns, copies),
            remote_end_ns=_scaled(self.remote_end_ns, copies),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWork:
    """What a copy costs the processor at one end: a fixed part, and one for each byte."""

    per_copy_ns: ShortNs = 0
    ns_per_byte: Annotated[float, Ge(0), Le(1e3), What("a number of ns from 0 to 1000")] = 0.0

    def time_ns(self, size_bytes: int) -> int:
        """Return the work for one tensor."""
        return self.per_copy_ns + round(self.ns_per_byte * size_bytes)

    def scaled(self, *, fixed: float, by_byte: float) -> CopyWork:
        """Return the work with its two parts multiplied."""
        return CopyWork(
            per_copy_ns=round(self.per_copy_ns * fixed), ns_per_byte=self.ns_per_byte * by_byte
        )


# A copy engine moves the bytes.
NO_COPY_WORK = CopyWork()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed connection: a tensor takes ``latency_ns`` plus its size over the bandwidth.

    Where copies were measured, ``curve`` has (bytes, ns) of some, larger ones later and none of
    them faster than one before it. Then a copy takes what lies between its neighbours there (beyond
    the last, on the line through the last two), but at least the latency; latency and bandwidth are
    the straight line that fits best.

    ``sender`` and ``receiver`` are the parts of that time which the devices at its ends cannot
    compute. Links with the same ``channel`` share one wire and queue for it; None is a wire of the
    link's own.

    A tensor leaves for a target that has asked for it, which it does for all of them when it
    begins. ``request_ns`` is how long the request is on its way; 0 is for a target so near that
    nothing waits for requests.

    ``wake_ns`` is how much longer the receiver works at what reaches it asleep (`Dispatch`).

    A copy occupies the wire for all of its time but the latency; where ``stream_bytes_per_s`` says
    how fast copies leave that follow each other closely, only for its bytes at that rate. What more
    it takes by itself, others use.
    """

    source: str
    target: str
    latency_ns: int
    bandwidth_bytes_per_s: float
    basis: Basis
    channel: str | None = None
    curve: tuple[tuple[int, int], ...] = ()
    sender: CopyWork = NO_COPY_WORK
    receiver: CopyWork = NO_COPY_WORK
    request_ns: int = 0
    wake_ns: int = 0
    stream_bytes_per_s: float | None = None

    def transfer_ns(self, size_bytes: int) -> int:
        """Return the time that one tensor needs between idle ends."""
        return self.latency_ns + self.bytes_ns(size_bytes)

    def scaled(self, factor: float) -> Link:
        """Return the link with every time multiplied."""
        return self._scaled(factor, factor, factor, factor)

    def with_bytes_scaled(self, factor: float) -> Link:
        """Return the link with what a copy takes for its bytes multiplied; the latency stays.

        Where that is less, so is the work of its ends; a slower wire makes them no more of it.
        """
        return self._scaled(1.0, factor, 1.0, min(factor, 1.0))

    def with_latency_scaled(self, factor: float) -> Link:
        """Return the link with what a copy takes whatever its size multiplied, not the rest.

        Where that is less, so is the work of its ends; a longer way makes them no more of it.
        """
        return self._scaled(factor, 1.0, min(factor, 1.0), 1.0)

    def _scaled(self, fixed: float, by_byte: float, work: float, work_by_byte: float) -> Link:
        """Return the link with its latency, what bytes take, and both parts of work multiplied."""
        latency_ns = round(self.latency_ns * fixed)
        return replace(
            self,
            latency_ns=latency_ns,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s / by_byte,
            curve=tuple(
                (size, latency_ns + round((time_ns - self.latency_ns) * by_byte))
                for size, time_ns in self.curve
            ),
            sender=self.sender.scaled(fixed=work, by_byte=work_by_byte),
            receiver=self.receiver.scaled(fixed=work, by_byte=work_by_byte),
            request_ns=round(self.request_ns * fixed),
            wake_ns=round(self.wake_ns * work),
            stream_bytes_per_s=_divided(self.stream_bytes_per_s, by_byte),
        )

    def bytes_ns(self, size_bytes: int) -> int:
        """Return what one tensor takes for its bytes, which is all but the latency."""
        if not self.curve:
            return round(size_bytes / self.bandwidth_bytes_per_s * NS_PER_S)
        after = bisect_left(self.curve, (size_bytes, 0), lo=1, hi=len(self.curve) - 1)
        (low, low_ns), (high, high_ns) = self.curve[after - 1 : after + 1]
        time_ns = low_ns + (size_bytes - low) * (high_ns - low_ns) / (high - low)
        return max(0, round(time_ns) - self.latency_ns)

    def wire_ns(self, size_bytes: int) -> int:
        """Return the time for which one tensor keeps others from the wire."""
        bytes_ns = self.bytes_ns(size_bytes)
        if self.stream_bytes_per_s is None:
            return bytes_ns
        return min(bytes_ns, round(size_bytes / self.stream_bytes_per_s * NS_PER_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """How a step gets under way on several devices, and how it ends.

    ``step_overhead_ns`` is what any step costs beside its ops: the round trip that starts and ends
    it. A step that uses further devices keeps the first one busy for ``partition_overhead_ns``
    with each of them; they begin ``remote_start_ns`` later, and their end is known
    ``remote_end_ns`` after it, but for devices that have such times of their own. Ops and
    copy work of a device take turns while both wait, each for ``quantum_ns``. A device that has had
    nothing to do for ``asleep_ns`` is asleep.
    """

    step_overhead_ns: ShortNs = 0
    partition_overhead_ns: ShortNs = 0
    remote_start_ns: ShortNs = 0
    remote_end_ns: ShortNs = 0
    quantum_ns: ShortNs = 0
    asleep_ns: ShortNs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What devices share that stand in for others, and what GPUs do.

    Stand-ins are cores of one machine. ``split_ratio`` is how many times as long ops take in a step
    that uses further devices. A device alone draws ``memory_bytes_per_s`` from memory; beside
    another one that does the same this takes it ``memory_ratio`` times as long.

    Devices that launch ahead share memory and multiprocessors with copies and collectives, and
    wait for those that come in another order than they are needed: ``exchange_loss`` is the share
    that a step loses all the same of the time for which they are under way beside kernels.
    """

    split_ratio: _Times = 1.0
    memory_bytes_per_s: BytesPerS = 1e12
    memory_ratio: _Times = 1.0
    exchange_loss: Annotated[float, Ge(0), Le(1), What("a share from 0 to 1")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Devices in order, links between them, how steps are driven, and what devices share.

    ``hosts`` are there for ops that the devices cannot run; placements may name them as well.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    hosts: tuple[Device, ...] = ()
    dispatch: Dispatch = Dispatch()
    sharing: Sharing = Sharing()

    def scaled(self, *, copies: float, launches: float) -> Cluster:
        """Return the cluster with what its devices cost beside the ops themselves multiplied.

        ``copies`` is for links and for the start and end of further devices, ``launches`` for the
        launch overheads.
        """
        dispatch = self.dispatch
        return replace(
            self,
            devices=tuple(d.scaled(copies=copies, launches=launches) for d in self.devices),
            hosts=tuple(host.scaled(copies=copies, launches=launches) for host in self.hosts),
            links=tuple(link.scaled(copies) for link in self.links),
            dispatch=replace(
                dispatch,
                partition_overhead_ns=round(dispatch.partition_overhead_ns * copies),
                remote_start_ns=round(dispatch.remote_start_ns * copies),
                remote_end_ns=round(dispatch.remote_end_ns * copies),
            ),
        )

    def remote_start_ns(self, device: Device) -> int:
        """Return how long after the step a device begins that is not the first one."""
        own_ns = device.remote_start_ns
        return self.dispatch.remote_start_ns if own_ns is None else own_ns

    def remote_end_ns(self, device: Device) -> int:
        """Return how long after a device that is not the first one its end is known."""
        own_ns = device.remote_end_ns
        return self.dispatch.remote_end_ns if own_ns is None else own_ns

    def device_links(self) -> tuple[Link, ...]:
        """Return the links between two devices; those of hosts are left out."""
        names = set(self.device_names())
        return tuple(link for link in self.links if {link.source, link.target} <= names)

    def with_device_links(self, change: Callable[[Link], Link]) -> Cluster:
        """Return the cluster with the links between two devices changed; those of hosts stay."""
        changed = set(self.device_links())
        links = tuple(change(link) if link in changed else link for link in self.links)
        return replace(self, links=links)

    def device_names(self) -> tuple[str, ...]:
        """Return the names in device order, hosts left out."""
        return tuple(device.name for device in self.devices)

    def places(self) -> tuple[Device, ...]:
        """Return all that can run ops, devices first, then hosts."""
        return (*self.devices, *self.hosts)

    def first_host(self) -> str | None:
        """Return the host of the first device, else a place that takes its part; None if alone."""
        first, *others = self.devices
        if first.host is not None:
            return first.host
        return next((place.name for place in (*self.hosts, *others)), None)

    def place_names(self) -> tuple[str, ...]:
        """Return the names of all that can run ops, devices first, then hosts."""
        return tuple(place.name for place in self.places())

    def with_devices(self, names: Collection[str]) -> Cluster:
        """Return the cluster with these of its devices, all hosts, and the links between them."""
        left = {*names, *(host.name for host in self.hosts)}
        return replace(
            self,
            devices=tuple(device for device in self.devices if device.name in left),
            links=tuple(k for k in self.links if k.source in left and k.target in left),
        )

    def link(self, source: str, target: str) -> Link:
        """Return the link from ``source`` to ``target``.

        Raises:
            PlacementError: no such link.
        """
        for link in self.links:
            if (link.source, link.target) == (source, target):
                return link
        known = ", ".join(f"{link.source} → {link.target}" for link in self.links)
        raise PlacementError(f"no link from {source!r} to {target!r}; the cluster has {known}")


def _scaled(time_ns: int | None, factor: float) -> int | None:
    return None if time_ns is None else round(time_ns * factor)


def _divided(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate / factor
