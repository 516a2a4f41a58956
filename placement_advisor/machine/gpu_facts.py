"""What datasheets say of GPUs, as far as the times of their kernels follow from it.

Every figure comes from `hardware.toml`, table `gpus`, where its source stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_json import shown
from placement_advisor.machine.presets import hardware_figures, there_are


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU, as its datasheet describes it.

    ``chip`` is what cards of one design share (GV100). ``peak_flops_per_s`` is that of float32 at
    the boost clock, without matrix units. ``capability`` is the compute capability, ``memory`` the
    kind of memory, ``power_watts`` the limit of the board. ``tf32_flops_per_s`` and
    ``half_flops_per_s`` are those of its matrix units, without sparsity, halves being added up in
    float32; None if it has no such units. Those since Ampere do bfloat16 as they do float16.
    """

    chip: str
    capability: float
    multiprocessors: int
    peak_flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    memory: str
    l2_bytes: int
    power_watts: float
    tf32_flops_per_s: float | None = None
    half_flops_per_s: float | None = None


def gpu_facts(name: str) -> GpuFacts:
    """Return the facts of a GPU.

    Raises:
        AdvisorError: `hardware.toml` does not describe it.
    """
    known = hardware_figures()["gpus"]
    if name not in known:
        raise AdvisorError(f"no datasheet of GPU {shown(name)}; {there_are(known, name)}")
    facts = {key: value for key, value in known[name].items() if key not in ("note", "sources")}
    return GpuFacts(**facts)


def gpus_with_facts() -> tuple[str, ...]:
    """Return the names that `gpu_facts` knows."""
    return tuple(hardware_figures()["gpus"])
