"""Answers of `advisor hardware`, `calibrate` and `doctor --run`: devices and their figures."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, MaxLen, MinLen

from placement_advisor import __version__
from placement_advisor.analysis.acceptance import CheckOutcome
from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.files.contract import (
    STRICT,
    Count,
    Filled,
    NotNegative,
    Ns,
    Positive,
    Rows,
    Text,
    like,
)
from placement_advisor.graph.identities import Fingerprint
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.gpu_facts import listed_gpus, listed_links
from placement_advisor.results.analysis import PUBLISHED_STEPS, PublishedSteps

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from placement_advisor.analysis import acceptance as seen
    from placement_advisor.cost.links import CalibrationSummary
    from placement_advisor.machine.gpu_facts import ListedGpu, ListedLink


# Title, publisher, address.
_Source = Annotated[Rows[Text], MinLen(3), MaxLen(3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels of a kind, and what their times rest on."""

    family: Literal[
        "linear",
        "bmm",
        "conv",
        "conv_by_input",
        "conv_by_filter",
        "add",
        "mul",
        "relu",
        "tanh",
        "softmax",
    ]
    basis: Literal["fitted", "transferred", "assumed"]
    """`transferred`: from other chips."""
    mean_error: float | None
    """Share; None if assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU."""

    name: Text
    aliases: Rows[Text]
    gpu: Text
    """Datasheet."""
    chip: Text
    multiprocessors: Positive
    peak_flops_per_s: float
    """float32 without matrix units, boost clock."""
    matrix_flops_per_s: float | None
    """Products, convolutions; None if the same."""
    memory_bandwidth_bytes_per_s: float
    """Nominal."""
    memory_bytes: Positive
    """Nominal."""
    launch_overhead_ns: Ns
    """Per op, equal for all."""
    launch_overhead_basis: Literal["assumed"]
    links: Filled[Text]
    """Default first."""
    kernels: Rows[Kernels]
    note: Text | None
    """Which figures are judgements, why."""
    sources: Rows[_Source]
    """Title, publisher, address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between devices."""

    name: Text
    latency_ns: Positive
    """Smallest copy."""
    latency_basis: Literal["measured", "assumed"]
    bandwidth_bytes_per_s: float
    """One way."""
    bandwidth_basis: Literal["measured", "assumed"]
    most_devices: int | None
    """Of a bridge."""
    note: Text | None
    sources: Rows[_Source]
    """Title, publisher, address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What `--hardware` knows by name."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    published_steps: PublishedSteps
    devices: Rows[Gpu]
    links: Rows[Link]

    @classmethod
    def of(cls, presets: Collection[str] | None) -> Hardware:
        """Return what is published of some presets, of all without any."""

        def is_wanted(name: str) -> bool:
            return presets is None or name in presets

        return cls(
            schema_version=1,
            advisor_version=__version__,
            published_steps=PUBLISHED_STEPS,
            devices=tuple(_gpu(gpu) for gpu in listed_gpus() if is_wanted(gpu.name)),
            links=tuple(_link(link) for link in listed_links() if is_wanted(link.name)),
        )


def _gpu(gpu: ListedGpu) -> Gpu:
    device, facts = gpu.device, gpu.facts
    return like(
        Gpu,
        gpu,
        aliases=tuple(gpu.aliases),
        gpu=gpu.datasheet,
        chip=facts.chip,
        multiprocessors=facts.multiprocessors,
        peak_flops_per_s=facts.peak_flops_per_s,
        matrix_flops_per_s=device.matrix_flops_per_s,
        memory_bandwidth_bytes_per_s=facts.memory_bandwidth_bytes_per_s,
        memory_bytes=device.memory_bytes,
        launch_overhead_ns=device.launch_overhead_ns,
        launch_overhead_basis=Basis.ASSUMED.value,
        links=tuple(gpu.links),
        kernels=tuple(
            Kernels(family=family.value, basis=basis.value, mean_error=error)
            for family, (basis, error) in family_bases(device).items()
        ),
        sources=tuple(map(tuple, gpu.sources)),
    )


def _link(listed: ListedLink) -> Link:
    return like(
        Link,
        listed,
        latency_ns=listed.link.latency_ns,
        latency_basis=listed.latency_basis.value,
        bandwidth_bytes_per_s=listed.link.bandwidth_bytes_per_s,
        bandwidth_basis=listed.bandwidth_basis.value,
        sources=tuple(map(tuple, listed.sources)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """What was measured."""

    kind: Literal["gpus", "workers", "logical-cpus", "hosts"]
    description: Text
    host_link: Literal["tls", "direct"] | None
    """`tls`: relays; None: one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device, by a step that all of them run."""

    name: Text
    reference_ns: Ns
    """256×256 float32 product."""
    reference_p90_ratio: NotNegative
    """90th percentile over median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host."""

    name: Text
    address: Text
    """Reached by other hosts."""
    devices: Filled[Text]
    remote_ns: Ns | None
    """To start and end a device; None: first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a copy takes of a device at its end."""

    per_copy_ns: Ns
    ns_per_byte: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copies of a size, and how far the line is off."""

    size_bytes: Count
    copy_ns: int
    """Between idle devices; noise: negative."""
    send_ns: Ns | None
    """Core time; None without processes."""
    receive_ns: Ns | None
    """Core time, likewise."""
    residual: float | None
    """(line - measured) / measured; None: `copy_ns` ≤ 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """One direction of a link."""

    source: Text
    target: Text
    latency_ns: Ns
    """Of an empty copy, fitted."""
    bandwidth_bytes_per_s: Positive
    """Of large copies, fitted."""
    sender: Work | None
    receiver: Work | None
    request_ns: Ns
    """Target's request; 0 within a machine."""
    wake_ns: Ns
    """Receiver's extra work after a rest."""
    channel: Text | None
    """Wire shared; None: its own."""
    copies: Filled[Copy]
    """Fitted points, by size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """Copies in both directions at once, against one."""

    between: tuple[Text, Text]
    size_bytes: Count
    one_way_ns: int
    """Per further tensor, one direction."""
    both_ways_ns: int
    """Per further tensor each way."""
    ratio: NotNegative | None
    """1: independent, 2: by turns; None: noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """Two pairs of devices that copy at once, against one."""

    source: Text
    target: Text
    size_bytes: Count
    one_pair_ns: int
    """Per further tensor, one pair."""
    two_pairs_ns: int
    """Per further tensor of each pair."""
    ratio: NotNegative | None
    """1: independent, 2: one wire; None: noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What devices of one machine share; None where there is one device, and over several hosts."""

    bytes_per_s: NotNegative
    """One device alone."""
    ratio: Annotated[float, Ge(1.0)]
    """Slowdown beside another device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a testbed takes for what is no op."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    tensorflow_version: Text
    testbed: Testbed
    fingerprint: Fingerprint
    """Key in the cache."""
    kept_in: Text | None
    """Cache file; None if not writable."""
    cluster_file: Text | None
    """Written by `-o`."""
    warnings: Rows[Text]
    devices: Annotated[Rows[Device], MinLen(2)]
    hosts: Rows[Host]
    """Driver first; empty on one machine."""
    links: Rows[MeasuredLink]
    """Directed; over hosts, one stands for all alike."""
    both_ways: Rows[BothWays]
    at_once: Rows[AtOnce]
    """Between hosts with two devices."""
    step_overhead_ns: Ns
    """Beside ops."""
    partition_overhead_ns: Ns
    """On the first, per further device."""
    remote_ns: Ns
    """To start and end a further device."""
    quantum_ns: Ns
    """Busy with ops before copies."""
    wake_ns: Ns
    """Extra for a copy to an idle device."""
    op_ns: Ns
    """Of a trivial op."""
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
            links=tuple(_measured_link(summary, ends) for ends in summary.links()),
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


def _measured_link(summary: CalibrationSummary, ends: tuple[str, str]) -> MeasuredLink:
    link, timings = summary.cluster.link(*ends), summary.calibration.links[ends]
    is_known = timings[0].send_ns is not None
    return like(
        MeasuredLink,
        link,
        bandwidth_bytes_per_s=round(link.bandwidth_bytes_per_s),
        sender=like(Work, link.sender) if is_known else None,
        receiver=like(Work, link.receiver) if is_known else None,
        copies=tuple(
            like(Copy, timing, residual=summary.residual(ends, timing)) for timing in timings
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, and what came of it."""

    name: Text
    outcome: CheckOutcome
    finding: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two devices that ran the step."""

    near: Text
    far: Text
    findings: Rows[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a known step showed of the devices here."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[2]
    advisor_version: Text
    tensorflow_version: Text
    trusted: bool
    """Nothing is off; exit code 1 if not."""
    untried_on_gpus: bool
    """Devices are GPUs, never tried yet."""
    testbed: Literal["gpus", "workers", "hosts"]
    description: Text
    bundle: Text
    """As given; without folder in the bundle."""
    pairs: Rows[Pair]

    @classmethod
    def of(cls, acceptance: seen.Acceptance, bundle: Path) -> Acceptance:
        """Return it as it is published."""
        pairs = tuple(
            like(Pair, pair, findings=tuple(like(Finding, each) for each in pair.findings))
            for pair in acceptance.pairs
        )
        return like(
            cls,
            acceptance.plan,
            schema_version=2,
            advisor_version=__version__,
            tensorflow_version=version("tensorflow"),
            trusted=not any(f.outcome is CheckOutcome.OFF for pair in pairs for f in pair.findings),
            untried_on_gpus=acceptance.plan.on_gpus,
            testbed=acceptance.plan.kind.value,
            bundle=str(bundle),
            pairs=pairs,
        )
