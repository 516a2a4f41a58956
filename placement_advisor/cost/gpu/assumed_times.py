"""What the time of a step's ops rests on, on a GPU that nobody can measure here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.cost.gpu.kernel_times import GRADIENTS, KernelBasis, kernel_errors
from placement_advisor.cost.table import CostBasis, CostTable
from placement_advisor.graph.op import KernelFamily
from placement_advisor.machine.gpu_facts import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device

_ON_MATRIX_UNITS = frozenset({KernelFamily.LINEAR, KernelFamily.BMM, KernelFamily.CONV})


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTime:
    """The kernels of one family that the record has: how far off they are in the mean.

    ``share`` is that of the time of all ops of the step.
    """

    family: str
    basis: KernelBasis
    error: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedTimes:
    """What the time of all ops rests on, one after the other on one GPU.

    ``gpu`` is the name of its datasheet. Launches take ``launch_share``. ``families`` are those
    with a record, most time first. Kernels of a kind that it lacks take ``assumed_share``; what
    follows from peaks and bandwidth alone takes ``roofline_share``. All shares are 1 together, or 0
    where there are no ops.
    """

    gpu: str
    launch_share: float
    families: tuple[FamilyTime, ...]
    assumed_share: float
    roofline_share: float


def times_by_gpu(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> tuple[AssumedTimes, ...]:
    """Return what times rest on, for each sort of GPU with a datasheet, in device order."""
    first_of: dict[str, Device] = {}
    for device in cluster.devices:
        if device.gpu is not None:
            first_of.setdefault(device.gpu, device)
    return tuple(
        _times(graph, costs[device.name], gpu, device.launch_overhead_ns)
        for gpu, device in first_of.items()
    )


def _times(graph: OpGraph, table: CostTable, gpu: str, launch_ns: int) -> AssumedTimes:
    by_basis: defaultdict[CostBasis, int] = defaultdict(int)
    by_family: defaultdict[str, int] = defaultdict(int)
    for op in graph.ops:
        cost = table.costs.get(op.name)
        if cost is None:
            continue
        by_basis[cost.basis] += cost.time_ns
        if cost.basis is CostBasis.KERNEL and op.kernel is not None:
            by_family[op.kernel.family] += cost.time_ns
    launches_ns = launch_ns * len(table.costs)
    total_ns = max(1, launches_ns + sum(by_basis.values()))
    errors = kernel_errors(gpu_facts(gpu))
    families = [
        FamilyTime(
            family=family,
            basis=errors[family][0],
            error=errors[family][1],
            share=time_ns / total_ns,
        )
        for family, time_ns in by_family.items()
        if time_ns
    ]
    return AssumedTimes(
        gpu=gpu,
        launch_share=launches_ns / total_ns,
        families=tuple(sorted(families, key=lambda each: (-each.share, each.family))),
        assumed_share=by_basis[CostBasis.KERNEL_ASSUMED] / total_ns,
        roofline_share=(by_basis[CostBasis.ROOFLINE] + by_basis[CostBasis.GUESSED]) / total_ns,
    )


def family_bases(device: Device) -> dict[KernelFamily, tuple[KernelBasis, float | None]]:
    """Return what times of kernels rest on, and their mean error, on a GPU with a datasheet.

    Convolutions are those of the record: others are assumed, as are gradients of all.

    Raises:
        AdvisorError: its datasheet is not known.
        ValueError: it has none.
    """
    if device.gpu is None:
        raise ValueError(f"device {device.name!r} has no datasheet")
    errors: dict[str, tuple[KernelBasis, float]] = kernel_errors(gpu_facts(device.gpu))
    lacking = set(GRADIENTS)
    if device.matrix_flops_per_s is not None:
        lacking |= _ON_MATRIX_UNITS
    return {
        family: (KernelBasis.ASSUMED, None) if family in lacking else errors[family]
        for family in KernelFamily
    }
