import pytest
from op_graphs import edge

from placement_advisor.cost.gpu.kernel_times import (
    casts_ns,
    computes_in_float32,
    policy_for,
    reached_bandwidth,
    with_policy,
)
from placement_advisor.graph.op import Arithmetic, Kernel, KernelFamily, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device
from placement_advisor.machine.gpu_facts import gpu_facts

PRODUCT = Kernel(KernelFamily.LINEAR, (1, 64, 64, 64))


def step(kernel):
    """Return a step with a variable of 4 kB and one that only an update reads."""
    return OpGraph(
        [
            Op(name="w", kind="VarHandleOp", role=Role.VARIABLE, parameter_bytes=4_000),
            Op(name="m", kind="VarHandleOp", role=Role.VARIABLE, parameter_bytes=4_000),
            Op(name="read", kind="ReadVariableOp", variable="w", bytes_accessed=8_000),
            Op(name="product", kind="MatMul", kernel=kernel, bytes_accessed=301),
            Op(name="gradient", kind="MatMul", role=Role.BACKWARD, bytes_accessed=None),
            Op(name="update", kind="Adam", role=Role.UPDATE, variable="m", bytes_accessed=100),
        ],
        [edge("read", "product"), edge("product", "gradient"), edge("gradient", "update")],
    )


def test_both_passes_take_half_the_bytes_but_for_updates_and_what_is_in_halves_already():
    mixed = with_policy(step(PRODUCT), Arithmetic.FLOAT16)
    found = {op.name: op.bytes_accessed for op in mixed.ops if op.role is not Role.VARIABLE}
    assert found == {"read": 4_000, "product": 150, "gradient": None, "update": 100}
    assert mixed.op("product").kernel == PRODUCT._replace(arithmetic=Arithmetic.FLOAT16)

    halves = PRODUCT._replace(arithmetic=Arithmetic.BFLOAT16)
    assert with_policy(step(halves), Arithmetic.FLOAT16).op("product").kernel == halves


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (PRODUCT, True),
        (PRODUCT._replace(arithmetic=Arithmetic.FLOAT32), True),
        (PRODUCT._replace(arithmetic=Arithmetic.BFLOAT16), False),
        (Kernel(KernelFamily.ADD, (1, 64)), False),
        (None, False),
    ],
)
def test_only_products_in_float32_ask_for_units(kernel, expected):
    assert computes_in_float32(step(kernel)) is expected


@pytest.mark.parametrize(
    ("gpu", "policy"),
    [("V100-SXM2", Arithmetic.FLOAT16), ("A100-40GB-SXM4", Arithmetic.BFLOAT16), ("P4", None)],
)
def test_each_gpu_has_its_policy(gpu, policy):
    assert policy_for(gpu_facts(gpu)) is policy


def test_casts_are_of_what_the_forward_pass_reads_and_of_its_gradients():
    gpu = gpu_facts("A100-40GB-SXM4")
    device = Device(name="GPU:0", kind="GPU", launch_overhead_ns=1_000)
    moved_ns = 3 * 4_000 / reached_bandwidth(gpu) * 1e9
    assert casts_ns(step(PRODUCT), device, gpu) == round(moved_ns) + 2 * 1_000
