from __future__ import annotations

from dataclasses import replace

import pytest

from placement_advisor.cost.roofline import STAND_IN_CPU, roofline_costs
from placement_advisor.cost.table import CostBasis, OpCost
from placement_advisor.devices import Device
from placement_advisor.graph import CONTROL_PORT, Edge, Op, OpGraph, Role

# 1 flop and 1 byte per ns.
DEVICE = Device(
    name="a",
    kind="CPU",
    peak_flops_per_s=1e9,
    memory_bandwidth_bytes_per_s=1e9,
    launch_overhead_ns=77,
)


def cost_of(op: Op, *inputs: tuple[Op, int, int | None]) -> OpCost:
    """Cost of an op that reads (producer, port, bytes)."""
    producers = {producer.name: producer for producer, _, _ in inputs}
    edges = [
        Edge(producer=producer.name, consumer=op.name, port=port, size_bytes=size_bytes)
        for producer, port, size_bytes in inputs
    ]
    return roofline_costs(OpGraph([*producers.values(), op], edges), DEVICE).costs[op.name]


def some_op(
    kind: str = "MatMul",
    flops: int | None = 0,
    output_bytes: tuple[int | None, ...] = (),
    role: Role = Role.FORWARD,
) -> Op:
    return Op(name="x", kind=kind, flops=flops, output_bytes=output_bytes, role=role)


SOURCE = Op(name="source", kind="Relu", output_bytes=(100, 100))
VARIABLE = Op(name="v", kind="VarHandleOp", role=Role.VARIABLE, parameter_bytes=1_000)


def test_an_op_takes_its_arithmetic_where_that_is_longer_by_hand() -> None:
    cost = cost_of(some_op(flops=500, output_bytes=(30,)), (SOURCE, 0, 100))
    assert cost == OpCost(time_ns=500, basis=CostBasis.ROOFLINE)


def test_an_op_takes_its_memory_traffic_where_that_is_longer_by_hand() -> None:
    cost = cost_of(some_op(flops=50, output_bytes=(30,)), (SOURCE, 0, 100), (SOURCE, 1, 100))
    assert cost == OpCost(time_ns=230, basis=CostBasis.ROOFLINE)


def test_a_tensor_read_twice_by_one_op_moves_once() -> None:
    cost = cost_of(some_op(output_bytes=(30,)), (SOURCE, 0, 100), (SOURCE, 0, 100))
    assert cost.time_ns == 130


def test_unknown_flops_leave_the_memory_time_as_a_guess() -> None:
    cost = cost_of(some_op(flops=None, output_bytes=(30,)), (SOURCE, 0, 100))
    assert cost == OpCost(time_ns=130, basis=CostBasis.GUESSED)


@pytest.mark.parametrize(("input_bytes", "output_bytes"), [(None, 30), (30, None)])
def test_an_unknown_size_leaves_a_guess(input_bytes: int | None, output_bytes: int | None) -> None:
    cost = cost_of(some_op(output_bytes=(output_bytes,)), (SOURCE, 0, input_bytes))
    assert cost == OpCost(time_ns=30, basis=CostBasis.GUESSED)


def test_a_control_edge_moves_nothing_and_is_not_unknown() -> None:
    cost = cost_of(some_op(output_bytes=(30,)), (SOURCE, CONTROL_PORT, None))
    assert cost == OpCost(time_ns=30, basis=CostBasis.ROOFLINE)


@pytest.mark.parametrize("kind", ["Reshape", "Identity", "ReadVariableOp", "Shape"])
def test_an_op_that_copies_nothing_moves_no_bytes(kind: str) -> None:
    assert cost_of(some_op(kind, output_bytes=(100,)), (SOURCE, 0, 100)).time_ns == 0


def test_a_dense_update_reads_and_writes_its_variable_and_reads_the_gradient() -> None:
    op = some_op("ResourceApplyGradientDescent", role=Role.UPDATE)
    assert cost_of(op, (VARIABLE, 0, None), (SOURCE, 0, 100)).time_ns == 1_000 + 1_000 + 100


def test_a_sparse_update_touches_its_rows_alone() -> None:
    op = some_op("ResourceScatterSub", role=Role.UPDATE)
    assert cost_of(op, (VARIABLE, 0, None), (SOURCE, 0, 100)).time_ns == 100


def test_a_gather_reads_the_rows_that_it_puts_out() -> None:
    op = some_op("ResourceGather", output_bytes=(40,))
    assert cost_of(op, (VARIABLE, 0, None), (SOURCE, 0, 100)).time_ns == 40 + 40 + 100


def test_constants_inputs_and_variables_have_no_cost() -> None:
    ops = [
        Op(name=role, kind="Any", role=role, output_bytes=(8,))
        for role in (Role.CONSTANT, Role.INPUT, Role.VARIABLE)
    ]
    assert roofline_costs(OpGraph(ops, []), DEVICE).costs == {}


def test_the_launch_overhead_is_left_to_the_simulator() -> None:
    assert cost_of(some_op(output_bytes=(30,))).time_ns == 30


def test_a_device_without_a_peak_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a peak"):
        roofline_costs(OpGraph([], []), replace(DEVICE, peak_flops_per_s=None))


def test_the_stand_in_has_all_that_a_roofline_needs() -> None:
    op = some_op(flops=5 * 10**10)
    assert roofline_costs(OpGraph([op], []), STAND_IN_CPU).time_ns("x") == 10**9
