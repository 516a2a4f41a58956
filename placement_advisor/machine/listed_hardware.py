"""The presets of `hardware.toml`, each with what its figures rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.machine.devices import Basis
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.presets import device_preset, hardware_figures, link_preset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.machine.devices import Device, Link
    from placement_advisor.machine.gpu_facts import GpuFacts


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
    device: Device
    datasheet: str
    facts: GpuFacts
    links: tuple[str, ...]
    note: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLink:
    """A preset of a link; a bridge joins ``most_devices``, None is for all other links."""

    name: str
    link: Link
    latency_basis: Basis
    bandwidth_basis: Basis
    most_devices: int | None
    note: str | None
    sources: tuple[Source, ...]


def listed_gpus() -> tuple[ListedGpu, ...]:
    """Return all presets of GPUs, in the order of the file."""
    return tuple(_gpu(name, table) for name, table in hardware_figures()["devices"].items())


def listed_links() -> tuple[ListedLink, ...]:
    """Return all presets of links, in the order of the file."""
    return tuple(_link(name, table) for name, table in hardware_figures()["links"].items())


def _gpu(name: str, table: Mapping[str, Any]) -> ListedGpu:
    datasheet = table["gpu"]
    sheet = hardware_figures()["gpus"][datasheet]
    launches = hardware_figures()["launches"]
    told = (sheet.get("note"), table.get("note"), f"launch of an op: {launches['note']}")
    return ListedGpu(
        name=name,
        aliases=tuple(table.get("aliases", ())),
        device=device_preset(name, name=name),
        datasheet=datasheet,
        facts=gpu_facts(datasheet),
        links=tuple(table["links"]),
        note="; ".join(filter(None, told)),
        sources=_sources([*sheet["sources"], *table["sources"], *launches["sources"]]),
    )


def _link(name: str, table: Mapping[str, Any]) -> ListedLink:
    return ListedLink(
        name=name,
        link=link_preset(name, source="", target=""),
        latency_basis=_basis("latency_ns", table),
        bandwidth_basis=_basis("bandwidth_bytes_per_s", table),
        most_devices=table.get("most_devices"),
        note=table.get("note"),
        sources=_sources(table["sources"]),
    )


def _basis(figure: str, table: Mapping[str, Any]) -> Basis:
    return Basis.MEASURED if figure in table.get("measured", ()) else Basis.ASSUMED


def _sources(names: list[str]) -> tuple[Source, ...]:
    known = hardware_figures()["sources"]
    return tuple(Source(*known[name]) for name in dict.fromkeys(names))
