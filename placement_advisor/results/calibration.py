"""What `advisor calibrate` answers: what the devices of a testbed and the links between them do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MinLen
from pydantic import StringConstraints

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    Count,
    NotNegative,
    Ns,
    Positive,
    Rows,
    Text,
    like,
)

if TYPE_CHECKING:
    from placement_advisor.cost.calibration_summary import CalibrationSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """What was measured."""

    kind: Literal["gpus", "workers", "logical-cpus", "hosts"]
    """Sort of testbed."""
    description: Text
    """The testbed in words."""
    host_link: Literal["tls", "direct"] | None
    """How several hosts reach one another: `tls` through a relay on each, `direct` without; None on
    one machine.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device, by a step that all of them run."""

    name: Text
    """Name that every other field uses."""
    reference_ns: Ns
    """Time of the reference product: two 256 by 256 matrices of float32."""
    reference_p90_ratio: NotNegative
    """90th percentile over median of steps made of such products; 1 is a perfectly steady core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host."""

    name: Text
    """Name that the user gave it."""
    address: Text
    """Where the other hosts reach it."""
    devices: Annotated[Rows[Text], MinLen(1)]
    """Its devices."""
    remote_ns: Ns | None
    """What it takes to start a device there and to hear that it has ended; None for the first host.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a copy takes of a device at its end."""

    per_copy_ns: Ns
    """Part that every tensor costs."""
    ns_per_byte: NotNegative
    """Part for each byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copies of a size, and how far the line is off."""

    size_bytes: Count
    """Size of the tensor."""
    copy_ns: int
    """Time of a copy between idle devices; a difference, which noise can make negative."""
    send_ns: Ns | None
    """Core time at the sender; None where devices are no processes."""
    receive_ns: Ns | None
    """Core time at the receiver; None as above."""
    residual: float | None
    """(line - measured) / measured; None if the time is not positive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction of a link."""

    source: Text
    """Device that sends."""
    target: Text
    """Device that receives."""
    latency_ns: Ns
    """Fixed part of the line: the time of an empty copy."""
    bandwidth_bytes_per_s: Positive
    """Slope of the line: bytes per second of a large copy."""
    sender: Work | None
    receiver: Work | None
    request_ns: Ns
    """How long the target's request for a tensor takes, which nothing leaves without; 0 within a
    machine, where it is not waited for.
    """
    wake_ns: Ns
    """How much longer the receiver works at what reaches it after a rest."""
    channel: Text | None
    """Name of a wire that it shares with the other links of that channel; None where it has one of
    its own.
    """
    copies: Annotated[Rows[Copy], MinLen(1)]
    """What the line was fitted to, by size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """Copies in both directions at once, against one."""

    between: tuple[Text, Text]
    """The two devices."""
    size_bytes: Count
    """Size of each tensor."""
    one_way_ns: int
    """What one more tensor adds where all go one way, the mean of both directions."""
    both_ways_ns: int
    """What one more tensor each way adds where they meet."""
    ratio: NotNegative | None
    """The second over the first: 1 where the directions do not hinder each other, 2 where they take
    turns; None if noise hid a time.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """Two pairs of devices that copy at once, against one."""

    source: Text
    """Host that sends."""
    target: Text
    """Host that receives."""
    size_bytes: Count
    """Size of each tensor."""
    one_pair_ns: int
    """What one more tensor adds where one pair of devices sends."""
    two_pairs_ns: int
    """What one more tensor of each pair adds where two send."""
    ratio: NotNegative | None
    """The second over the first: 1 where the pairs do not hinder each other, 2 where they share one
    wire; None if noise hid a time.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What devices of one machine share; None where there is one device, and over several hosts."""

    bytes_per_s: NotNegative
    """What one device draws from memory while no other one does."""
    ratio: Annotated[float, Ge(1.0)]
    """How many times as long the same takes it beside another device that does it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a testbed takes for what is no op."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that measured."""
    tensorflow_version: Text
    """Version of TensorFlow that ran."""
    testbed: Testbed
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    """Name under which the calibration is kept; it is used where it is equal."""
    kept_in: Text | None
    """File that keeps it for analyses to come; None if it could not be written."""
    cluster_file: Text | None
    """Cluster file that was written, as the user gave it; None if none was asked for."""
    warnings: Rows[Text]
    """What else the user should know."""
    devices: Annotated[Rows[Device], MinLen(2)]
    """Devices in order."""
    hosts: Rows[Host]
    """Hosts whose devices these are, the one that drives steps first; empty where all are of one
    machine.
    """
    links: Rows[Link]
    """Directed links between devices, each with the line that fits its measured copies best; over
    several hosts one for each two hosts and each way, and two within a host, for all others alike.
    """
    both_ways: Rows[BothWays]
    """Copies in both directions at once, by pair of devices."""
    at_once: Rows[AtOnce]
    """Copies of two pairs of devices at once, from one host to another; empty where there is one
    machine, and without hosts that have two devices.
    """
    step_overhead_ns: Ns
    """What any step costs beside its ops."""
    partition_overhead_ns: Ns
    """What a further device costs the first one."""
    remote_ns: Ns
    """What it takes to start a further device of the first host, or of the only machine, and to
    hear that it has ended.
    """
    quantum_ns: Ns
    """How long a busy device goes on with ops before it turns to copies; 0 where nothing was seen
    of it.
    """
    wake_ns: Ns
    """How much longer a copy takes to a device that has had nothing to do for a while; 0 where
    nothing was seen of it.
    """
    op_ns: Ns
    """Time of an op that computes next to nothing."""
    memory: Memory | None

    @classmethod
    def of(cls, summary: CalibrationSummary) -> Calibration:
        """Return it as it is published."""
        calibration, network = summary.calibration, summary.calibration.network
        return like(
            cls,
            calibration,
            schema_version=1,
            advisor_version=__version__,
            tensorflow_version=summary.tensorflow_version,
            testbed=Testbed(
                kind=summary.testbed,  # type: ignore[arg-type]
                description=summary.description,
                host_link=None if summary.link is None else summary.link.value,
            ),
            fingerprint=summary.fingerprint,
            kept_in=summary.kept_in,
            cluster_file=summary.cluster_file,
            warnings=tuple(summary.warnings),
            devices=tuple(
                Device(
                    name=name,
                    reference_ns=time_ns,
                    reference_p90_ratio=calibration.reference_p90[name],
                )
                for name, time_ns in calibration.reference_ns.items()
            ),
            hosts=()
            if network is None
            else tuple(
                like(
                    Host,
                    host,
                    devices=tuple(network.devices[host.name]),
                    remote_ns=network.remote_ns.get(host.name),
                )
                for host in summary.hosts
            ),
            links=tuple(_link(summary, ends) for ends in summary.links()),
            both_ways=tuple(
                like(BothWays, timing, between=tuple(ends))
                for ends, timing in calibration.both_ways.items()
            ),
            at_once=()
            if network is None
            else tuple(
                like(AtOnce, timing, source=source, target=target)
                for (source, target), timing in network.at_once.items()
            ),
            memory=None if calibration.memory is None else like(Memory, calibration.memory),
        )


def _link(summary: CalibrationSummary, ends: tuple[str, str]) -> Link:
    link, timings = summary.cluster.link(*ends), summary.calibration.links[ends]
    is_known = timings[0].send_ns is not None
    return like(
        Link,
        link,
        bandwidth_bytes_per_s=round(link.bandwidth_bytes_per_s),
        sender=like(Work, link.sender) if is_known else None,
        receiver=like(Work, link.receiver) if is_known else None,
        copies=tuple(
            like(Copy, timing, residual=summary.residual(ends, timing)) for timing in timings
        ),
    )
