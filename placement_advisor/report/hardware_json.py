"""What `--hardware` knows by name as the public contract of ``advisor hardware --json``.

Times are integer nanoseconds, sizes integer bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.files.contract import plain
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.listed_hardware import listed_gpus, listed_links
from placement_advisor.results.analysis import PUBLISHED_STEPS

if TYPE_CHECKING:
    from collections.abc import Collection

    from placement_advisor.machine.listed_hardware import ListedGpu, ListedLink

SCHEMA_VERSION = 1


def hardware_as_json(presets: Collection[str] | None) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("hardware")``; None is for all presets."""

    def is_wanted(name: str) -> bool:
        return presets is None or name in presets

    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "published_steps": plain(PUBLISHED_STEPS),
        "devices": [_gpu(gpu) for gpu in listed_gpus() if is_wanted(gpu.name)],
        "links": [_link(link) for link in listed_links() if is_wanted(link.name)],
    }


def _gpu(gpu: ListedGpu) -> dict[str, Any]:
    device, facts = gpu.device, gpu.facts
    return {
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "gpu": gpu.datasheet,
        "chip": facts.chip,
        "multiprocessors": facts.multiprocessors,
        "peak_flops_per_s": facts.peak_flops_per_s,
        "matrix_flops_per_s": device.matrix_flops_per_s,
        "memory_bandwidth_bytes_per_s": facts.memory_bandwidth_bytes_per_s,
        "memory_bytes": device.memory_bytes,
        "launch_overhead_ns": device.launch_overhead_ns,
        "launch_overhead_basis": Basis.ASSUMED.value,
        "links": list(gpu.links),
        "kernels": [
            {"family": family.value, "basis": basis.value, "mean_error": error}
            for family, (basis, error) in family_bases(device).items()
        ],
        "note": gpu.note,
        "sources": [list(source) for source in gpu.sources],
    }


def _link(listed: ListedLink) -> dict[str, Any]:
    return {
        "name": listed.name,
        "latency_ns": listed.link.latency_ns,
        "latency_basis": listed.latency_basis.value,
        "bandwidth_bytes_per_s": listed.link.bandwidth_bytes_per_s,
        "bandwidth_basis": listed.bandwidth_basis.value,
        "most_devices": listed.most_devices,
        "note": listed.note,
        "sources": [list(source) for source in listed.sources],
    }
