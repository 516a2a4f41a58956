"""What `advisor hardware` answers: what `--hardware` knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

from placement_advisor import __version__
from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.files.contract import STRICT, Ns, Positive, Rows, Text, like
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.listed_hardware import listed_gpus, listed_links
from placement_advisor.results.analysis import PUBLISHED_STEPS, PublishedSteps

if TYPE_CHECKING:
    from collections.abc import Collection

    from placement_advisor.machine.listed_hardware import ListedGpu, ListedLink


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
    """What they compute."""
    basis: Literal["fitted", "transferred", "assumed"]
    """Formulas fitted to kernels of this chip, or transferred from other chips; or assumed, as no
    such kernel was measured.
    """
    mean_error: float | None
    """How far off such times are in the mean, as a share; None if assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU."""

    name: Text
    """Name of the preset."""
    aliases: Rows[Text]
    """Other names for it."""
    gpu: Text
    """Name of its datasheet."""
    chip: Text
    """Its design, which cards share."""
    multiprocessors: Positive
    """How many it has."""
    peak_flops_per_s: float
    """Peak in float32 without matrix units, at boost clock."""
    matrix_flops_per_s: float | None
    """Peak of products and convolutions, where matrix units do them; None if that is the other one.
    """
    memory_bandwidth_bytes_per_s: float
    """Nominal bandwidth of its memory."""
    memory_bytes: Positive
    """Nominal size of its memory."""
    launch_overhead_ns: Ns
    """What each op takes of the host beside its kernel, the same for all cards."""
    launch_overhead_basis: Literal["assumed"]
    """Where that comes from: it is a judgement."""
    links: Annotated[Rows[Text], MinLen(1)]
    """Links that can join such devices, the default first."""
    kernels: Rows[Kernels]
    """What times of kernels rest on, by family."""
    note: Text | None
    """Which figures are judgements, and why; None if there is nothing to say."""
    sources: Rows[Annotated[Rows[Text], MinLen(3), MaxLen(3)]]
    """Where its figures come from, its datasheet's first: title, publisher, address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link between devices."""

    name: Text
    """Name of the preset."""
    latency_ns: Positive
    """What the smallest copy takes."""
    latency_basis: Literal["measured", "assumed"]
    """Whether that was measured."""
    bandwidth_bytes_per_s: float
    """Bandwidth one way."""
    bandwidth_basis: Literal["measured", "assumed"]
    """Whether that was measured."""
    most_devices: int | None
    """How many devices a bridge joins; None if it is none."""
    note: Text | None
    """What the figures are of."""
    sources: Rows[Annotated[Rows[Text], MinLen(3), MaxLen(3)]]
    """Where they come from: title, publisher, address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What `--hardware` knows by name."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor."""
    published_steps: PublishedSteps
    devices: Rows[Gpu]
    """Presets of GPUs."""
    links: Rows[Link]
    """Presets of links, between devices and between hosts."""

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
