"""What `advisor hardware` answers: what `--hardware` knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import MaxLen, MinLen

from placement_advisor import __version__
from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.files.contract import STRICT, Filled, Ns, Positive, Rows, Text, like
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.listed_hardware import listed_gpus, listed_links
from placement_advisor.results.analysis import PUBLISHED_STEPS, PublishedSteps

if TYPE_CHECKING:
    from collections.abc import Collection

    from placement_advisor.machine.listed_hardware import ListedGpu, ListedLink


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
