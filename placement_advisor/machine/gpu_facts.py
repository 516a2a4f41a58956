"""What datasheets say of GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import shown
from placement_advisor.machine import presets

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
