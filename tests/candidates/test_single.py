from dataclasses import replace

from step_graphs import Call, cluster_of, deepconn, training_step

from placement_advisor.candidates.references import on_device, on_other_kinds, propose_single
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops
from placement_advisor.machine.devices import Device

HOST = Device(name="CPU:0", kind="CPU", launch_overhead_ns=2)
GPU = Device(name="GPU:0", kind="GPU", host="CPU:0")


def others(cluster, graph=None):
    made, costs = training_step([Call(name="a", feeds=("in:x",), cost_ns=100)])
    return on_other_kinds(graph or made, costs.everywhere(cluster), cluster)


def test_single_puts_every_op_on_the_first_device():
    graph, costs = training_step(deepconn())
    cluster = cluster_of("d0", "d1")
    placement = propose_single(graph, costs.everywhere(cluster), cluster)
    assert placement == on_device(graph, "d0")
    assert placement.device_of == {op.name: "d0" for op in placed_ops(graph)}
    assert placement.rationale == "everything on d0"


def test_equal_devices_are_of_one_kind():
    assert others(cluster_of("d0", "d1", "d2")) == ()


def test_the_host_of_a_gpu_is_a_kind_of_its_own_and_its_launches_count():
    # An op and its gradient of 50 ns, an input and four ops of a metric: a launch of 2 ns for each.
    [found] = others(cluster_of(GPU, hosts=[HOST, replace(HOST, name="CPU:1")]))
    assert (found.label, found.family) == ("single-cpu", "single")
    assert set(found.device_of.values()) == {"CPU:0"}
    assert found.rationale == "everything on CPU:0, where its ops take 114 ns in all"


def test_uneven_devices_are_kinds_named_after_their_first_device():
    slow = replace(GPU, name="GPU:1", peak_flops_per_s=1e12)
    again = replace(slow, name="GPU:2", host="CPU:1")
    found = others(cluster_of(GPU, slow, again, hosts=[HOST]))
    assert [placement.label for placement in found] == ["single-gpu-1", "single-cpu"]
    assert set(found[0].device_of.values()) == {"GPU:1"}


def test_a_host_without_a_kernel_for_some_op_is_left_out():
    graph, _ = training_step([Call(name="a", feeds=("in:x",))])
    first, *rest = placed_ops(graph)
    made = OpGraph([first._replace(device_kinds=frozenset({"GPU"})), *rest], [])
    assert others(cluster_of(GPU, hosts=[HOST]), made) == ()
