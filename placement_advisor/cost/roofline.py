"""Op costs from flops, bytes and dimensions alone, for when no step may run.

A CPU reaches a share of its peak by kind of kernel. On a GPU, ops that TensorFlow fuses run
in the kernel of another op. After Williams, Waterman and Patterson, Roofline, CACM 2009.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.cost.gpu.kernel_times import kernel_cost, reached_bandwidth
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import (
    COMPUTING_ROLES,
    COUNTING_KINDS,
    DIMENSIONS,
    Arithmetic,
    KernelFamily,
    WorkBasis,
)
from placement_advisor.graph.op_work import arithmetic, elementwise, movement
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.graph.op import Inside, Kernel, Op
    from placement_advisor.graph.op_graph import OpGraph


# Eigen's products of matrices, which triangular solutions call in place of oneDNN's: 51 to 78 of
# 132 Gflop/s.
PLAIN_PRODUCT_SHARE = 1 / 2
# The same for many small matrices, with operands that Einsum transposes first: 4 to 30 of 150
# Gflop/s on the shapes of attention.
BATCHED_PRODUCT_SHARE = 1 / 5
# Vectorised, but along rows: 12 to 40 of 131 Gop/s at rows of 100 and more, less below.
SHORT_ROW_SHARE = 1 / 8
# One number at a time in place of 16: loops over library functions, generators, unblocked
# factorisations, texts. Measured 4 to 16 Gop/s.
SCALAR_SHARE = 1 / 16
# The same, and a comparison with the label for each number: 3.9 of 131 Gop/s.
LABELLED_SHARE = SCALAR_SHARE / 2
# Scalar, and about a dozen operations for addresses and bounds around each counted one: Eigen
# evaluates a row of a tensor as an expression, element by element. Measured 0.5 to 1.2 Gop/s.
INDEXED_SHARE = SCALAR_SHARE / 12
# Each operation waits for the one before it or for a branch that depends on the data, about 10
# cycles, in which the vector units would do 640 flops. Measured 0.1 to 0.2 Gop/s.
SERIAL_SHARE = 1 / 640

_COMBINATIONS = ("Add", "Sub", "Min", "Max")
_SPARSE_UPDATES = (
    "Adadelta Adagrad AdagradDA AdagradV2 CenteredRMSProp Ftrl FtrlV2 KerasMomentum Momentum "
    "ProximalAdagrad ProximalGradientDescent RMSProp"
)
_SCALAR = """
Betainc Cosh Digamma Erfinv Expm1 FloorMod Igamma IgammaGradA Igammac Lgamma Mod Ndtri Polygamma Pow
Sinh SoftmaxCrossEntropyWithLogits Softplus Tan TruncateMod Zeta CombinedNonMaxSuppression
NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
"""
_INDEXED = (
    "ArgMax ArgMin Bincount CTCLoss CTCLossV2 DenseBincount ScatterNd SparseTensorDenseMatMul"
)
_SERIAL = "Bucketize Cumprod Cumsum LowerBound NthElement TopK TopKV2 UpperBound Where"

CPU_PEAK_SHARES: dict[str, float] = {
    **dict.fromkeys(
        arithmetic.LINEAR_ALGEBRA_FORMULAS | elementwise.RANDOM_FORMULAS | movement.TEXT_FORMULAS,
        SCALAR_SHARE,
    ),
    "MatrixTriangularSolve": PLAIN_PRODUCT_SHARE,
    "Einsum": BATCHED_PRODUCT_SHARE,
    "SparseSoftmaxCrossEntropyWithLogits": LABELLED_SHARE,
    **dict.fromkeys(("Softmax", "LogSoftmax"), SHORT_ROW_SHARE),
    **dict.fromkeys(_SCALAR.split(), SCALAR_SHARE),
    **{f"ResourceSparseApply{name}": SCALAR_SHARE for name in _SPARSE_UPDATES.split()},
    **dict.fromkeys(_INDEXED.split(), INDEXED_SHARE),
    **{f"UnsortedSegment{name}": INDEXED_SHARE for name in ("Sum", "Max", "Min", "Prod")},
    **{
        f"{name}{form}": INDEXED_SHARE
        for name in movement.SPARSE_SEGMENTS
        for form in ("", "WithNumSegments", "Grad", "GradV2")
    },
    **{f"ResourceScatter{name}": INDEXED_SHARE for name in (*_COMBINATIONS, "Mul", "Div")},
    **{f"TensorScatter{name}": INDEXED_SHARE for name in _COMBINATIONS},
    **{f"ResourceScatterNd{name}": INDEXED_SHARE for name in _COMBINATIONS},
    **dict.fromkeys(_SERIAL.split(), SERIAL_SHARE),
}


_FLOAT32 = frozenset({Arithmetic.DEFAULT, Arithmetic.FLOAT32})


def fused_into_convolutions(graph: OpGraph) -> frozenset[str]:
    """Return the names of ops that take no time of their own."""
    fused: set[str] = set()
    for op in graph.ops:
        if op.kind != "Conv2D" or op.kernel is None or not _is_fused_kind(op.kernel):
            continue
        bias = _only_reader(graph, op, "BiasAdd")
        relu = None if bias is None else _only_reader(graph, bias, "Relu")
        if bias is not None and relu is not None and not _is_ordered(graph, relu):
            fused |= {bias.name, relu.name}
    return frozenset(fused)


def _is_fused_kind(kernel: Kernel) -> bool:
    if kernel.arithmetic not in _FLOAT32:
        return False
    sizes = dict(zip(DIMENSIONS[KernelFamily.CONV], kernel.dims, strict=True))
    return sizes["filter_height"] > 1 and sizes["filter_width"] > 1


def _only_reader(graph: OpGraph, op: Op, kind: str) -> Op | None:
    """Return what reads an op, None if it is of another kind, one of several, or ordered."""
    readers = graph.outputs_of(op.name)
    if len(readers) != 1 or _is_ordered(graph, op):
        return None
    reader = graph.op(readers[0].consumer)
    return reader if reader.kind == kind else None


def _is_ordered(graph: OpGraph, op: Op) -> bool:
    edges = (*graph.inputs_of(op.name), *graph.outputs_of(op.name))
    return any(edge.is_control for edge in edges)


# One core of a server of today, assumed, for runs that measure nothing; all of it judgement. 5e10
# flop/s is half of what two 8-wide fused multiply-adds per cycle give at 3 GHz. 1e10 B/s is less
# than one core draws alone (19 to 30 GB/s in docs/reference/figures.md), as its neighbours work
# too. 5 µs is what TensorFlow's executor spends on an op beside its kernel, on a busy machine; on a
# quiet one about half of it (`launches`, before 0.2).
STAND_IN_CPU = Device(
    name="worker:0",
    kind="CPU",
    peak_flops_per_s=5e10,
    memory_bandwidth_bytes_per_s=1e10,
    launch_overhead_ns=5_000,
)

# What special units for matrices do, where a device has some. Depthwise convolutions, dilations and
# products with sparse matrices reach them in no kernel of TensorFlow's.
MATRIX_KINDS = frozenset(
    {
        *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"),
        *("Conv", "Conv2D", "Conv3D", "FusedPadConv2D", "FusedResizeAndPadConv2D"),
        *(
            f"Conv{n}DBackprop{of}{v}"
            for n in (2, 3)
            for of in ("Input", "Filter")
            for v in ("", "V2")
        ),
    }
)


class _Way(NamedTuple):
    """How a tensor gets from a device to its host, or back."""

    latency_ns: int
    bandwidth_bytes_per_s: float


class Roof:
    """What bounds the time of ops on a device: its arithmetic, its memory, the way to its host."""

    def __init__(self, device: Device, way: _Way | None = None) -> None:
        """Take a device and the way between it and its host, None if it has none.

        Raises:
            AdvisorError: the device names a datasheet that is not known.
            ValueError: the device has no peak or no memory bandwidth.
        """
        peak, bandwidth = device.peak_flops_per_s, device.memory_bandwidth_bytes_per_s
        if not peak or not bandwidth:
            raise ValueError(f"device {device.name!r} needs a peak and a memory bandwidth")
        self.device, self._way, self._peak = device, way, peak
        self._gpu = gpu_facts(device.gpu) if device.gpu else None
        self._bandwidth = bandwidth if self._gpu is None else reached_bandwidth(self._gpu)
        self._shares = CPU_PEAK_SHARES if device.kind == "CPU" else {}

    def time_ns(self, op: Op) -> float:
        """Return what an op takes, not rounded, so that times of small ones compare."""
        if self._gpu is not None and op.kernel is not None:
            return kernel_cost(op.kernel, self._gpu).time_ns
        matrix_peak = self.device.matrix_flops_per_s if op.kind in MATRIX_KINDS else None
        reachable = (matrix_peak or self._peak) * self._shares.get(op.kind, 1.0)
        bound = max((op.bytes_accessed or 0) / self._bandwidth, (op.flops or 0) / reachable)
        time_ns = bound * NS_PER_S
        if op.inside is not None:
            time_ns = _opened_ns(op.inside, time_ns, self.device, self._way)
        if op.kind in COUNTING_KINDS and self._way is not None:
            time_ns += self._way.latency_ns
        return time_ns

    def cost(self, op: Op) -> OpCost:
        """Return the cost of an op by which it is bound."""
        if self._gpu is not None and op.kernel is not None:
            return kernel_cost(op.kernel, self._gpu)
        return OpCost(time_ns=round(self.time_ns(op)), basis=_basis(op))


def roofline_by_place(graph: OpGraph, cluster: Cluster) -> dict[str, CostTable]:
    """Return what the ops that compute cost on each device and host of a cluster.

    Devices that are alike share a table. Constants, inputs and variables have no cost.

    The basis is `KERNEL` or `KERNEL_ASSUMED` where the op is a kernel with a known time,
    `ROOFLINE` where a formula gave both flops and bytes, else `GUESSED`: the cost then covers what
    is known.

    Raises:
        AdvisorError: a device names a datasheet that is not known.
        ValueError: one of them has no peak or no memory bandwidth.
    """
    roofs = roofs_by_place(cluster)
    tables = {roof: _costs(graph, roof) for roof in set(roofs.values())}
    return {name: tables[roof] for name, roof in roofs.items()}


def roofs_by_place(cluster: Cluster) -> dict[str, Roof]:
    """Return what bounds ops on each device and host of a cluster; those that are alike share it.

    Raises:
        ValueError: one of them has no peak or no memory bandwidth.
    """
    roofs: dict[tuple[Device, _Way | None], Roof] = {}
    found = {}
    for place in cluster.places():
        way = _way_to_host(place, cluster)
        alike = place.bare(), way
        if alike not in roofs:
            roofs[alike] = Roof(place, way)
        found[place.name] = roofs[alike]
    return found


def _costs(graph: OpGraph, roof: Roof) -> CostTable:
    fused = fused_into_convolutions(graph) if roof.device.kind == "GPU" else frozenset()
    return CostTable(
        costs={
            op.name: OpCost(time_ns=0, basis=_basis(op)) if op.name in fused else roof.cost(op)
            for op in graph.ops
            if op.role in COMPUTING_ROLES
        }
    )


def _way_to_host(place: Device, cluster: Cluster) -> _Way | None:
    """Return the slower way between a device and its host, None if there is none."""
    ends = {place.name, place.host}
    ways = [
        _Way(link.latency_ns, link.bandwidth_bytes_per_s)
        for link in cluster.links
        if {link.source, link.target} == ends
    ]
    return max(ways, key=lambda way: (way.latency_ns, -way.bandwidth_bytes_per_s), default=None)


def _opened_ns(inside: Inside, work_ns: float, device: Device, way: _Way | None) -> float:
    """Return what a loop or conditional takes whose ops are launched and placed singly."""
    launches_ns = max(inside.ops - 1, 0) * device.launch_overhead_ns
    own_ns = max(work_ns, launches_ns) if device.launches_ahead else work_ns + launches_ns
    if way is None:
        return own_ns
    wire_ns = (inside.copied_bytes or 0) / way.bandwidth_bytes_per_s * NS_PER_S
    return own_ns + inside.copies * way.latency_ns + wire_ns


def _basis(op: Op) -> CostBasis:
    is_known = op.flops is not None and op.bytes_accessed is not None
    if is_known and op.work_basis is WorkBasis.FORMULA:
        return CostBasis.ROOFLINE
    return CostBasis.GUESSED
