"""What datasheets say of GPUs, and the presets of `hardware.toml` with their sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import shown
from placement_advisor.machine import devices, presets

if TYPE_CHECKING:
    from collections.abc import Mapping


# What the driver writes before and behind the names that datasheets have.
_BRANDS = frozenset({"NVIDIA", "Tesla", "GeForce", "Quadro"})
_MEMORY = re.compile(r"HBM\d\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU, as its datasheet describes it.

    ``chip`` is what cards of one design share (GV100). ``peak_flops_per_s`` is that of float32 at
    the boost clock, without matrix units. ``capability`` is the compute capability, ``memory`` the
    kind of memory, ``power_watts`` the limit of the board. Every such card reaches its base clock.
    ``tf32_flops_per_s`` and ``half_flops_per_s`` are those of its matrix units, without sparsity,
    halves being added up in float32; None if it has no such units. Those since Ampere do bfloat16
    as they do float16.
    """

    chip: str
    capability: float
    multiprocessors: int
    peak_flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    memory: str
    l2_bytes: int
    power_watts: float
    base_clock_mhz: int
    boost_clock_mhz: int
    tf32_flops_per_s: float | None = None
    half_flops_per_s: float | None = None

    @property
    def clock_range(self) -> float:
        """How far the boost clock is above the base clock, as a share of this."""
        return self.boost_clock_mhz / self.base_clock_mhz - 1

    def is_matched_by(self, other: GpuFacts) -> bool:
        """Return whether another GPU is as good or better in every figure.

        What one multiprocessor reaches is one of these: a kernel too small to fill the GPU runs as
        fast as those do that it fills.
        """
        return all(
            ours <= theirs for ours, theirs in zip(self._figures(), other._figures(), strict=True)
        )

    def _figures(self) -> tuple[float, ...]:
        return (
            self.multiprocessors,
            self.peak_flops_per_s,
            self.peak_flops_per_s / self.multiprocessors,
            self.tf32_flops_per_s or 0,
            self.half_flops_per_s or 0,
            self.memory_bandwidth_bytes_per_s,
            self.l2_bytes,
            self.power_watts,
            self.capability,
        )


def gpu_facts(name: str) -> GpuFacts:
    """Return the facts of a GPU.

    Raises:
        AdvisorError: `hardware.toml` does not describe it.
    """
    known = presets.hardware_figures()["gpus"]
    if name not in known:
        raise AdvisorError(f"no datasheet of GPU {shown(name)}; {presets.there_are(known, name)}")
    facts = {key: value for key, value in known[name].items() if key not in ("note", "sources")}
    return GpuFacts(**facts)


def facts_of_card(name: str) -> GpuFacts | None:
    """Return the facts of a card by what the driver calls it, None if no datasheet is known.

    >>> facts_of_card("NVIDIA A100-SXM4-80GB").chip, facts_of_card("NVIDIA GeForce GT 710")
    ('GA100', None)
    """
    words = [word for word in name.split() if word not in _BRANDS and not _MEMORY.fullmatch(word)]
    for preset, table in presets.hardware_figures()["devices"].items():
        names = (preset, *table.get("aliases", ()))
        if _letters("".join(words)) in map(_letters, names):
            return gpu_facts(table["gpu"])
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def gpus_with_facts() -> tuple[str, ...]:
    """Return the names that `gpu_facts` knows."""
    return tuple(presets.hardware_figures()["gpus"])


@cache
def gpus_matched_by(gpu: GpuFacts) -> tuple[GpuFacts, ...]:
    """Return the GPU and those with a datasheet that it matches in every figure."""
    known = dict.fromkeys((gpu, *map(gpu_facts, gpus_with_facts())))
    return tuple(each for each in known if each.is_matched_by(gpu))


class Source(NamedTuple):
    """Where a figure comes from."""

    title: str
    publisher: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGpu:
    """A preset of a GPU; ``links`` can join such devices, the default first."""

    name: str
    aliases: tuple[str, ...]
    device: devices.Device
    datasheet: str
    facts: GpuFacts
    links: tuple[str, ...]
    note: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLink:
    """A preset of a link; a bridge joins ``most_devices``, None is for all other links."""

    name: str
    link: devices.Link
    latency_basis: devices.Basis
    bandwidth_basis: devices.Basis
    most_devices: int | None
    note: str | None
    sources: tuple[Source, ...]


def listed_gpus() -> tuple[ListedGpu, ...]:
    """Return all presets of GPUs, in the order of the file."""
    return tuple(_gpu(name, table) for name, table in presets.hardware_figures()["devices"].items())


def listed_links() -> tuple[ListedLink, ...]:
    """Return all presets of links, in the order of the file."""
    return tuple(_link(name, table) for name, table in presets.hardware_figures()["links"].items())


def _gpu(name: str, table: Mapping[str, Any]) -> ListedGpu:
    datasheet = table["gpu"]
    sheet = presets.hardware_figures()["gpus"][datasheet]
    launches = presets.hardware_figures()["launches"]
    told = (sheet.get("note"), table.get("note"), f"launch of an op: {launches['note']}")
    return ListedGpu(
        name=name,
        aliases=tuple(table.get("aliases", ())),
        device=presets.device_preset(name, name=name),
        datasheet=datasheet,
        facts=gpu_facts(datasheet),
        links=tuple(table["links"]),
        note="; ".join(filter(None, told)),
        sources=_sources([*sheet["sources"], *table["sources"], *launches["sources"]]),
    )


def _link(name: str, table: Mapping[str, Any]) -> ListedLink:
    return ListedLink(
        name=name,
        link=presets.link_preset(name, source="", target=""),
        latency_basis=_basis("latency_ns", table),
        bandwidth_basis=_basis("bandwidth_bytes_per_s", table),
        most_devices=table.get("most_devices"),
        note=table.get("note"),
        sources=_sources(table["sources"]),
    )


def _basis(figure: str, table: Mapping[str, Any]) -> devices.Basis:
    return devices.Basis.MEASURED if figure in table.get("measured", ()) else devices.Basis.ASSUMED


def _sources(names: list[str]) -> tuple[Source, ...]:
    known = presets.hardware_figures()["sources"]
    return tuple(Source(*known[name]) for name in dict.fromkeys(names))
