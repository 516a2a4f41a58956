"""Answers of `advisor hardware`, `calibrate` and `doctor --run`: devices and their figures."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import MaxLen, MinLen

from placement_advisor import __version__
from placement_advisor.analysis.acceptance import AcceptanceCheck, CheckOutcome
from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.files import contract
from placement_advisor.graph.identities import Fingerprint
from placement_advisor.machine import presets
from placement_advisor.machine.calibration import MemoryTiming
from placement_advisor.results.analysis import PUBLISHED_STEPS, PublishedSteps

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from placement_advisor.analysis import acceptance as seen
    from placement_advisor.cost.links import CalibrationSummary


# Title, publisher, address.
_Source = Annotated[contract.Rows[contract.Text], MinLen(3), MaxLen(3)]


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
    """As a share; None if assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU."""

    name: contract.Text
    aliases: contract.Rows[contract.Text]
    gpu: contract.Text
    """Name in the datasheet."""
    chip: contract.Text
    multiprocessors: contract.Positive
    peak_flops_per_s: float
    """Of float32 at boost clock, without matrix units."""
    matrix_flops_per_s: float | None
    """Of products and convolutions; None if the same."""
    memory_bandwidth_bytes_per_s: float
    """Nominal."""
    memory_bytes: contract.Positive
    """Nominal."""
    launch_overhead_ns: contract.Ns
    """Of each op."""
    launch_overhead_basis: Literal["assumed"]
    links: contract.Filled[contract.Text]
    """The first is the default."""
    kernels: contract.Rows[Kernels]
    note: contract.Text | None
    """Which figures are judged, and why."""
    sources: contract.Rows[_Source]
    """Title, publisher, address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between devices."""

    name: contract.Text
    latency_ns: contract.Positive
    """Time of the smallest copy."""
    latency_basis: Literal["measured", "assumed"]
    bandwidth_bytes_per_s: float
    """One way."""
    bandwidth_basis: Literal["measured", "assumed"]
    most_devices: int | None
    """How many devices a bridge joins."""
    note: contract.Text | None
    sources: contract.Rows[_Source]
    """Title, publisher, address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What `--hardware` knows by name."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    published_steps: PublishedSteps
    devices: contract.Rows[Gpu]
    links: contract.Rows[Link]

    @classmethod
    def of(cls, names: Collection[str] | None) -> Hardware:
        """Return what is published of some presets, of all without any."""
        known = presets.hardware_figures()
        gpus, links = (
            [(name, row) for name, row in known[table].items() if names is None or name in names]
            for table in ("devices", "links")
        )
        return cls(
            schema_version=1,
            advisor_version=__version__,
            published_steps=PUBLISHED_STEPS,
            devices=tuple(_gpu(*each) for each in gpus),
            links=tuple(_link(*each) for each in links),
        )


def _gpu(name: str, table: Mapping[str, Any]) -> Gpu:
    known = presets.hardware_figures()
    sheet, launches = known["gpus"][table["gpu"]], known["launches"]
    device = presets.device_preset(name, name=name)
    told = (sheet.get("note"), table.get("note"), f"launch of an op: {launches['note']}")
    return Gpu(
        name=name,
        aliases=tuple(table.get("aliases", ())),
        gpu=table["gpu"],
        chip=sheet["chip"],
        multiprocessors=sheet["multiprocessors"],
        peak_flops_per_s=sheet["peak_flops_per_s"],
        matrix_flops_per_s=device.matrix_flops_per_s,
        memory_bandwidth_bytes_per_s=sheet["memory_bandwidth_bytes_per_s"],
        memory_bytes=table["memory_bytes"],
        launch_overhead_ns=device.launch_overhead_ns,
        launch_overhead_basis="assumed",
        links=tuple(table["links"]),
        kernels=tuple(
            Kernels(family=family.value, basis=basis.value, mean_error=error)
            for family, (basis, error) in family_bases(device).items()
        ),
        note="; ".join(filter(None, told)),
        sources=_sources([*sheet["sources"], *table["sources"], *launches["sources"]]),
    )


def _link(name: str, table: Mapping[str, Any]) -> Link:
    return Link(
        name=name,
        latency_ns=table["latency_ns"],
        latency_basis=_basis("latency_ns", table),
        bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"],
        bandwidth_basis=_basis("bandwidth_bytes_per_s", table),
        most_devices=table.get("most_devices"),
        note=table.get("note"),
        sources=_sources(table["sources"]),
    )


def _basis(figure: str, table: Mapping[str, Any]) -> Literal["measured", "assumed"]:
    return "measured" if figure in table.get("measured", ()) else "assumed"


def _sources(names: list[str]) -> tuple[tuple[str, ...], ...]:
    known = presets.hardware_figures()["sources"]
    return tuple(tuple(known[name]) for name in dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Testbed:
    """What was measured."""

    kind: Literal["gpus", "workers", "logical-cpus", "hosts"]
    description: contract.Text
    host_link: Literal["tls", "direct"] | None
    """None on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device, by a step that all of them run."""

    name: contract.Text
    reference_ns: contract.Ns
    """Of a 256×256 float32 product."""
    reference_p90_ratio: contract.NotNegative
    """90th percentile over median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host."""

    name: contract.Text
    address: contract.Text
    """Where other hosts reach it."""
    devices: contract.Filled[contract.Text]
    remote_ns: contract.Ns | None
    """To start and end a device there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a copy takes of a device at its end."""

    per_copy_ns: contract.Ns
    ns_per_byte: contract.NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copies of a size, and how far the line is off."""

    size_bytes: contract.Count
    copy_ns: int
    """Between idle devices; noise can make it negative."""
    send_ns: contract.Ns | None
    """On the sender's core; None if unknown."""
    receive_ns: contract.Ns | None
    """On the receiver's core."""
    residual: float | None
    """(line - measured) / measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """One direction of a link."""

    source: contract.Text
    target: contract.Text
    latency_ns: contract.Ns
    """Time of an empty copy, fitted."""
    bandwidth_bytes_per_s: contract.Positive
    """Of large copies, fitted."""
    sender: Work | None
    receiver: Work | None
    request_ns: contract.Ns
    """To request it; 0 within a machine."""
    wake_ns: contract.Ns
    """Extra work of a receiver that was idle."""
    channel: contract.Text | None
    """Name of a shared wire."""
    copies: contract.Filled[Copy]
    """Fitted by the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """Copies in both directions at once, against one."""

    between: tuple[contract.Text, contract.Text]
    size_bytes: contract.Count
    one_way_ns: int
    """For each further tensor, in one direction."""
    both_ways_ns: int
    """For each further tensor, in both."""
    ratio: contract.NotNegative | None
    """1: independent, 2: in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """Two pairs of devices that copy at once, against one."""

    source: contract.Text
    target: contract.Text
    size_bytes: contract.Count
    one_pair_ns: int
    """For each further tensor of one pair."""
    two_pairs_ns: int
    """For each further tensor of both."""
    ratio: contract.NotNegative | None
    """1: independent, 2: one wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a testbed takes for what is no op."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    tensorflow_version: contract.Text
    testbed: Testbed
    fingerprint: Fingerprint
    """Key in the cache."""
    kept_in: contract.Text | None
    """File of the cache, if writable."""
    cluster_file: contract.Text | None
    """Written by `-o`."""
    warnings: contract.Rows[contract.Text]
    devices: Annotated[contract.Rows[Device], MinLen(2)]
    hosts: contract.Rows[Host]
    """The command's own first; empty on one machine."""
    links: contract.Rows[MeasuredLink]
    """Between hosts, one for all devices."""
    both_ways: contract.Rows[BothWays]
    at_once: contract.Rows[AtOnce]
    """For hosts with two devices or more."""
    step_overhead_ns: contract.Ns
    """To start and end a step."""
    partition_overhead_ns: contract.Ns
    """What each further device costs the first one."""
    remote_ns: contract.Ns
    """To start and end a further device."""
    quantum_ns: contract.Ns
    """How long ops hold up copies."""
    wake_ns: contract.Ns
    """How much longer a copy to an idle device takes."""
    op_ns: contract.Ns
    """Of an op that computes nothing."""
    memory: MemoryTiming | None
    """None for one device, and over several hosts."""

    @classmethod
    def of(cls, summary: CalibrationSummary) -> Calibration:
        """Return it as it is published."""
        calibration, network = summary.calibration, summary.calibration.network
        return contract.like(
            cls,
            calibration,
            summary,
            advisor_version=__version__,
            testbed=contract.like(Testbed, summary, kind=summary.testbed, host_link=summary.link),
            devices=[
                Device(
                    name=name,
                    reference_ns=time_ns,
                    reference_p90_ratio=calibration.reference_p90[name],
                )
                for name, time_ns in calibration.reference_ns.items()
            ],
            hosts=[
                contract.like(
                    Host,
                    host,
                    devices=network.devices[host.name],
                    remote_ns=network.remote_ns.get(host.name),
                )
                for host in summary.hosts
                if network is not None
            ],
            links=[_measured_link(summary, ends) for ends in summary.links()],
            both_ways=[
                contract.like(BothWays, timing, between=ends)
                for ends, timing in calibration.both_ways.items()
            ],
            at_once=[
                contract.like(AtOnce, timing, source=source, target=target)
                for (source, target), timing in (network.at_once if network else {}).items()
            ],
        )


def _measured_link(summary: CalibrationSummary, ends: tuple[str, str]) -> MeasuredLink:
    link, timings = summary.cluster.link(*ends), summary.calibration.links[ends]
    is_known = timings[0].send_ns is not None
    return contract.like(
        MeasuredLink,
        link,
        bandwidth_bytes_per_s=round(link.bandwidth_bytes_per_s),
        sender=link.sender if is_known else None,
        receiver=link.receiver if is_known else None,
        copies=[
            contract.like(Copy, timing, residual=summary.residual(ends, timing))
            for timing in timings
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two devices that ran the step."""

    near: contract.Text
    far: contract.Text
    findings: contract.Rows[AcceptanceCheck]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a known step showed of the devices here."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[2]
    advisor_version: contract.Text
    tensorflow_version: contract.Text
    trusted: bool
    """Nothing is off; else the exit code is 1."""
    untried_on_gpus: bool
    """On GPUs, which nobody has reported yet."""
    testbed: Literal["gpus", "workers", "hosts"]
    description: contract.Text
    bundle: contract.Text
    """Path as given."""
    pairs: contract.Rows[Pair]

    @classmethod
    def of(cls, acceptance: seen.Acceptance, bundle: Path) -> Acceptance:
        """Return it as it is published."""
        plan, pairs = acceptance.plan, acceptance.pairs
        return contract.like(
            cls,
            plan,
            advisor_version=__version__,
            tensorflow_version=version("tensorflow"),
            trusted=not any(f.outcome is CheckOutcome.OFF for pair in pairs for f in pair.findings),
            untried_on_gpus=plan.on_gpus,
            testbed=plan.kind,
            bundle=str(bundle),
            pairs=pairs,
        )
