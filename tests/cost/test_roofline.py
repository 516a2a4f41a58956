from dataclasses import replace

import pytest
from op_formulas import has_formula
from placed_steps import control, edge

from placement_advisor.cost.gpu.kernel_times import kernel_time, reached_bandwidth
from placement_advisor.cost.roofline import (
    CPU_PEAK_SHARES,
    MATRIX_KINDS,
    STAND_IN_CPU,
    fused_into_convolutions,
    roofline_by_place,
)
from placement_advisor.cost.table import CostBasis, OpCost
from placement_advisor.graph.op import Arithmetic, Inside, Kernel, KernelFamily, Op, Role, WorkBasis
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Basis, Cluster, Device, Link
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.machine.presets import device_preset, read_hardware

# 1 flop and 1 byte per ns.
DEVICE = Device(
    name="a",
    kind="CPU",
    peak_flops_per_s=1e9,
    memory_bandwidth_bytes_per_s=1e9,
    launch_overhead_ns=77,
)


def roofline_costs(graph, device):
    return roofline_by_place(graph, Cluster(devices=(device,), links=()))[device.name]


def cost_of(op, device=DEVICE):
    return roofline_costs(OpGraph([op], []), device).costs[op.name]


def some_op(flops, bytes_accessed, kind="MatMul", basis=WorkBasis.FORMULA):
    return Op(name="x", kind=kind, flops=flops, bytes_accessed=bytes_accessed, work_basis=basis)


GUESSED, ROOFLINE = CostBasis.GUESSED, CostBasis.ROOFLINE


@pytest.mark.parametrize(
    ("op", "cost"),
    [
        # The longer of arithmetic and traffic; the launch is the simulator's.
        (some_op(500, 130), (500, ROOFLINE)),
        (some_op(50, 230), (230, ROOFLINE)),
        (some_op(0, 0, kind="Reshape"), (0, ROOFLINE)),
        # A guess where not both are known, or not by a formula.
        (some_op(None, 130), (130, GUESSED)),
        (some_op(70, None), (70, GUESSED)),
        (some_op(None, 130, basis=WorkBasis.SIZES), (130, GUESSED)),
        (some_op(None, None, basis=None), (0, GUESSED)),
        # Without vector instructions, a sixteenth of a CPU's peak; an addition between addresses,
        # a twelfth of that. Traffic is no slower.
        (some_op(100, 0, kind="Lgamma"), (1_600, ROOFLINE)),
        (some_op(100, 0, kind="UnsortedSegmentSum"), (19_200, ROOFLINE)),
        (some_op(100, 5_000, kind="Lgamma"), (5_000, ROOFLINE)),
    ],
)
def test_what_an_op_costs_on_a_cpu_by_hand(op, cost):
    time_ns, basis = cost
    assert cost_of(op) == OpCost(time_ns=time_ns, basis=basis)


def test_matrix_units_do_products_and_convolutions_and_nothing_else():
    device = replace(DEVICE, kind="GPU", matrix_flops_per_s=8e9)
    for kind in ("MatMul", "BatchMatMulV2", "Einsum", "Conv2D", "Conv2DBackpropFilter"):
        assert cost_of(some_op(800, 10, kind), device).time_ns == 100
        assert cost_of(some_op(800, 10, kind)).time_ns in (800, 4_000)
    for kind in ("Relu", "DepthwiseConv2dNative", "SparseTensorDenseMatMul"):
        assert cost_of(some_op(800, 10, kind), device).time_ns == 800
    # Ceilings hold for CPUs alone.
    assert cost_of(some_op(100, 0, kind="Lgamma"), device).time_ns == 100


def test_each_device_is_priced_by_its_own_figures_and_alike_ones_share_a_table():
    slow, fast = replace(DEVICE, name="slow"), replace(DEVICE, name="fast", peak_flops_per_s=4e9)
    host = replace(DEVICE, name="host")
    cluster = Cluster(devices=(slow, fast), links=(), hosts=(host,))
    tables = roofline_by_place(OpGraph([some_op(800, 10)], []), cluster)
    times_ns = {name: table.time_ns("x") for name, table in tables.items()}
    assert times_ns == {"slow": 800, "fast": 200, "host": 800}
    assert tables["slow"] is tables["host"]


def test_every_kind_with_a_rate_of_its_own_has_a_formula():
    assert [kind for kind in (*MATRIX_KINDS, *CPU_PEAK_SHARES) if not has_formula(kind)] == []
    assert all(0 < share < 1 for share in CPU_PEAK_SHARES.values())


def test_constants_inputs_and_variables_have_no_cost():
    ops = [
        Op(name=role, kind="Any", role=role, bytes_accessed=8)
        for role in (Role.CONSTANT, Role.INPUT, Role.VARIABLE)
    ]
    assert roofline_costs(OpGraph(ops, []), DEVICE).costs == {}


def with_host(device, there=(1_000, 1e9), back=(1_000, 1e9)):
    """Return a device and its host; ways between them are a latency and bytes a second."""
    links = tuple(
        Link(source=s, target=t, latency_ns=ns, bandwidth_bytes_per_s=rate, basis=Basis.ASSUMED)
        for s, t, (ns, rate) in (("a", "host", there), ("host", "a", back))
    )
    host = replace(DEVICE, name="host")
    return Cluster(devices=(replace(device, host="host"),), links=links, hosts=(host,))


def opened(device, inside, *, work=100):
    loop = some_op(work, 0, "While")._replace(inside=inside)
    return roofline_by_place(OpGraph([loop], []), with_host(device))["a"].time_ns("x")


def test_ops_in_a_loop_are_launched_one_by_one_and_cross_to_the_host_and_back_by_hand():
    inside = Inside(ops=5, copies=0, copied_bytes=0)
    # Its first launch is the simulator's.
    assert opened(DEVICE, inside) == 100 + 4 * 77
    ahead = replace(DEVICE, kind="GPU", launches_ahead=True)
    assert opened(ahead, inside) == 4 * 77
    assert opened(ahead, inside, work=1_000) == 1_000

    gpu = replace(DEVICE, kind="GPU", launches_ahead=True)
    assert opened(gpu, Inside(ops=1, copies=3, copied_bytes=40)) == 100 + 3 * 1_000 + 40
    assert opened(gpu, Inside(ops=1, copies=3, copied_bytes=None)) == 100 + 3 * 1_000


@pytest.mark.parametrize(("kind", "waits"), [("Where", 1), ("Unique", 1), ("Cast", 0)])
def test_the_host_of_a_gpu_reads_how_many_numbers_an_op_finds(kind, waits):
    cluster = with_host(replace(DEVICE, kind="GPU"), (9, 1e9), (9, 1e9))
    costs = roofline_by_place(OpGraph([some_op(0, 100, kind)], []), cluster)
    assert (costs["a"].time_ns("x"), costs["host"].time_ns("x")) == (100 + waits * 9, 100)


def test_the_slower_of_two_ways_to_the_host_counts():
    """What crosses to the host comes back, and links are given for each direction alone."""
    loop = some_op(0, 0, "While")._replace(inside=Inside(ops=1, copies=3, copied_bytes=40))
    fast, late, narrow = (1_000, 1e9), (5_000, 1e9), (1_000, 1e8)

    def loop_ns(there, back):
        cluster = with_host(replace(DEVICE, kind="GPU"), there, back)
        (gpu,), (_, down) = cluster.devices, cluster.links
        links = *cluster.links, replace(down, target="b", latency_ns=9, bandwidth_bytes_per_s=1e6)
        cluster = replace(cluster, devices=(gpu, replace(gpu, name="b")), links=links)
        return roofline_by_place(OpGraph([loop], []), cluster)["a"].time_ns("x")

    assert loop_ns(fast, late) == loop_ns(late, fast) == 3 * 5_000 + 40
    assert loop_ns(fast, narrow) == loop_ns(narrow, fast) == 3 * 1_000 + 400


def test_a_device_without_a_peak_is_refused_and_the_stand_in_has_one():
    with pytest.raises(ValueError, match="needs a peak"):
        roofline_costs(OpGraph([], []), replace(DEVICE, peak_flops_per_s=None))
    graph = OpGraph([some_op(5 * 10**10, 0)], [])
    assert roofline_costs(graph, STAND_IN_CPU).time_ns("x") == 10**9


V100 = device_preset("V100", name="GPU:0")
FACTS = gpu_facts("V100-SXM2")
PRODUCT = some_op(2 * 512**3, 3 * 4 * 512**2)._replace(
    kernel=Kernel(KernelFamily.LINEAR, (1, 512, 512, 512))
)
CONVOLUTION = some_op(10**9, 10**6, kind="Conv2D")
# 3x3, stride 1, as the record has them.
DIMS = (32, 64, 64, 3, 3, 14, 14, 14, 14, 1)


def test_an_op_that_is_one_kernel_takes_its_time_on_a_gpu_with_a_datasheet():
    assert cost_of(PRODUCT, V100) == kernel_time("linear", (1, 512, 512, 512), FACTS)
    without = cost_of(PRODUCT, replace(V100, gpu=None))
    assert without == OpCost(time_ns=round(2 * 512**3 / 15.7e3), basis=CostBasis.ROOFLINE)
    assert cost_of(PRODUCT._replace(kernel=None), V100).basis is CostBasis.ROOFLINE


def test_convolutions_unlike_those_of_the_record_and_gradients_of_all_are_assumed():
    forward = cost_of(CONVOLUTION._replace(kernel=Kernel(KernelFamily.CONV, DIMS)), V100)
    assert forward.basis is CostBasis.KERNEL
    for family in (KernelFamily.CONV_BY_INPUT, KernelFamily.CONV_BY_FILTER):
        gradient = cost_of(CONVOLUTION._replace(kernel=Kernel(family, DIMS)), V100)
        assert gradient == replace(forward, basis=CostBasis.KERNEL_ASSUMED, within=None)

    wide = (*DIMS[:3], 1, 7, *DIMS[5:])
    cost = cost_of(CONVOLUTION._replace(kernel=Kernel(KernelFamily.CONV, wide)), V100)
    assert cost.basis is CostBasis.KERNEL_ASSUMED


def test_products_on_matrix_units_are_assumed_and_those_without_are_on_record():
    a100 = device_preset("A100", name="GPU:0")
    plain = PRODUCT._replace(kernel=PRODUCT.kernel._replace(arithmetic=Arithmetic.FLOAT32))
    assert cost_of(PRODUCT, a100).basis is CostBasis.KERNEL_ASSUMED
    assert cost_of(plain, a100).basis is CostBasis.KERNEL
    assert cost_of(PRODUCT, a100).time_ns < cost_of(plain, a100).time_ns
    relu = some_op(1, 8, kind="Relu")._replace(kernel=Kernel(KernelFamily.RELU, (1, 10**6)))
    assert cost_of(relu, a100).basis is CostBasis.KERNEL


def test_other_ops_reach_the_share_of_the_bandwidth_that_copies_do():
    cost = cost_of(some_op(0, 9 * 10**8, kind="Transpose"), V100)
    assert cost.basis is CostBasis.ROOFLINE
    assert cost.time_ns == round(9e17 / reached_bandwidth(FACTS))
    assert 1_000_000 < cost.time_ns < 1_300_000


def convolution(*, filter_size=(3, 3)):
    dims = (8, 16, 16, *filter_size, 32, 32, 32, 32, 1)
    return Op(name="conv", kind="Conv2D", kernel=Kernel(KernelFamily.CONV, dims))


def layer(conv, *more, activation="Relu"):
    ops = [
        conv,
        Op(name="bias", kind="BiasAdd", bytes_accessed=10**6),
        Op(name="act", kind=activation, bytes_accessed=10**6),
        Op(name="next", kind="MaxPool"),
    ]
    edges = [edge("conv", "bias", 4), edge("bias", "act", 4), edge("act", "next", 4)]
    return OpGraph(ops, [*edges, *more])


def test_a_convolution_takes_its_bias_and_relu_along_and_only_on_gpus():
    graph = layer(convolution())
    assert fused_into_convolutions(graph) == {"bias", "act"}
    costs = roofline_by_place(graph, read_hardware("V100"))
    assert [costs["GPU:0"].time_ns(name) for name in ("bias", "act")] == [0, 0]
    assert min(costs["CPU:0"].time_ns(name) for name in ("bias", "act")) > 0


@pytest.mark.parametrize(
    "graph",
    [
        layer(convolution(filter_size=(1, 1))),
        layer(convolution(filter_size=(1, 3))),
        layer(convolution(), activation="Tanh"),
        layer(convolution(), edge("bias", "next", 4)),
        layer(convolution(), edge("conv", "next", 4)),
        layer(convolution(), control("act", "next")),
        layer(Op(name="conv", kind="Conv2D")),
    ],
    ids=["1x1", "1x3", "tanh", "bias read twice", "conv read twice", "ordered", "no float32"],
)
def test_nothing_else_is_fused(graph):
    assert fused_into_convolutions(graph) == frozenset()
