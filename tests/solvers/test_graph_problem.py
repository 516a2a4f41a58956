"""What an op graph and a cluster ask of the search for throughput."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from op_graphs import edge

from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op_graph import CONTROL_PORT, Op, OpGraph, Role
from placement_advisor.machine.presets import read_hardware
from placement_advisor.solvers.throughput.graph_problem import throughput_problem

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.problem import Problem

# 1 ms on an assumed worker, beside which every op costs 5 µs.
_WORK = {"flops": 50_000_000, "bytes_accessed": 0}


def matmul(name: str, layer: str | None = None, **fields: object) -> Op:
    return Op(name, "MatMul", layer=layer, output_bytes=(8,))._replace(**fields)


def asked(graph: OpGraph, cluster: Cluster) -> Problem:
    return throughput_problem(graph, roofline_by_place(graph, cluster), cluster)


def test_a_chain_by_hand() -> None:
    graph = OpGraph(
        [
            Op("in", "Placeholder", Role.INPUT, output_bytes=(2_100_000,)),
            matmul("a", "first", **_WORK),
            matmul("b", "second", parameter_bytes=40, **_WORK),
        ],
        [edge("in", "a", size_bytes=2_100_000), edge("a", "b")],
    )
    problem = asked(graph, assumed_cluster(2))
    (pool,) = problem.pools
    assert problem.ops == ("in", "a", "b")
    assert pool.devices == ("worker:0", "worker:1")
    assert pool.work == (0.0, 1_005_000.0, 1_005_000.0)
    # 150 µs, and 2.1 MB at 2.1 GB/s; b is read by none.
    assert problem.copy_time == (1_150_000.0, 150_004.0, 0.0)
    assert problem.size_bytes == (2_100_000, 8, 48)


def test_a_layer_is_one_group_with_its_backward_pass_and_its_variable() -> None:
    graph = OpGraph(
        [
            Op("w", "VarHandleOp", Role.VARIABLE, layer="dense", parameter_bytes=4),
            matmul("read", "dense", variable="w"),
            matmul("f", "dense"),
            matmul("loss"),
            matmul("g", "dense", role=Role.BACKWARD),
            matmul("update", "dense", role=Role.UPDATE, variable="w"),
        ],
        [
            edge("w", "read"),
            edge("read", "f"),
            edge("f", "loss"),
            edge("loss", "g"),
            edge("g", "update"),
            edge("w", "update"),
        ],
    )
    problem = asked(graph, assumed_cluster(2))
    groups = {frozenset(problem.ops[op] for op in group) for group in problem.groups}
    # An op outside layers belongs to the one that feeds it.
    assert groups == {frozenset({"w", "read", "f", "loss", "g", "update"})}
    assert {problem.ops[op] for op in problem.backward} == {"g", "update"}


def test_a_variable_that_two_layers_read_does_not_tie_them_together() -> None:
    graph = OpGraph(
        [
            Op("w", "VarHandleOp", Role.VARIABLE, parameter_bytes=4),
            matmul("read", variable="w"),
            Op("in", "Placeholder", Role.INPUT, output_bytes=(8,)),
            matmul("a", "a"),
            matmul("b", "b"),
        ],
        [edge("w", "read"), edge("read", "a"), edge("read", "b"), edge("in", "a"), edge("in", "b")],
    )
    problem = asked(graph, assumed_cluster(2))
    together = [{problem.ops[op] for op in group} for group in problem.groups]
    assert {"w", "read"} in together
    assert {"a"} in together
    assert {"b"} in together


def test_control_edges_and_constants_are_left_out() -> None:
    graph = OpGraph(
        [Op("c", "Const", Role.CONSTANT, output_bytes=(8,)), matmul("a"), matmul("b")],
        [edge("c", "a"), edge("a", "b", port=CONTROL_PORT, size_bytes=None)],
    )
    problem = asked(graph, assumed_cluster(2))
    assert problem.ops == ("a", "b")
    assert problem.edges == ()


def test_an_op_without_a_gpu_kernel_counts_with_the_time_of_the_host() -> None:
    cpu_only = matmul("a", flops=10**9, bytes_accessed=0)
    both = cpu_only._replace(name="b", device_kinds=frozenset({"CPU", "GPU"}))
    problem = asked(OpGraph([cpu_only, both], []), read_hardware("2xT4"))
    (pool,) = problem.pools
    assert pool.devices == ("GPU:0", "GPU:1")
    on_host, on_gpu = pool.work
    assert on_host is not None
    assert on_gpu is not None
    assert on_host > on_gpu > 0
    assert pool.capacity_bytes == read_hardware("2xT4").devices[0].memory_bytes


def test_an_op_without_a_kernel_anywhere_cannot_run() -> None:
    nowhere = matmul("a", device_kinds=frozenset({"TPU"}))
    (pool,) = asked(OpGraph([nowhere], []), assumed_cluster(2)).pools
    assert pool.work == (None,)


def test_devices_that_differ_are_pools_of_their_own() -> None:
    cluster = assumed_cluster(3)
    slow = replace(cluster.devices[1], peak_flops_per_s=1e9)
    cluster = replace(cluster, devices=(cluster.devices[0], slow, cluster.devices[2]))
    problem = asked(OpGraph([matmul("a", **_WORK)], []), cluster)
    assert [pool.devices for pool in problem.pools] == [("worker:0", "worker:2"), ("worker:1",)]
