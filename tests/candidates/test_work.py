from dataclasses import replace

from step_graphs import cluster_of

from placement_advisor.candidates.by_layer import alike, busy_ns
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device

HOST = Device(name="CPU:0", kind="CPU")
GPU = Device(name="GPU:0", kind="GPU", host="CPU:0", launch_overhead_ns=5)
BOTH = frozenset({"CPU", "GPU"})
GRAPH = OpGraph(
    [
        Op(name="mul", kind="MatMul", device_kinds=BOTH),
        Op(name="find", kind="LookupTableFindV2"),
        Op(name="new", kind="New", device_kinds=BOTH),
    ],
    [],
)
COSTS = CostTable(
    costs={name: OpCost(time_ns=20, basis=CostBasis.MEASURED) for name in ("mul", "find")}
)


def test_an_op_keeps_a_gpu_busy_with_its_launch_unless_it_runs_on_the_host():
    slow = replace(GPU, name="GPU:1", launch_overhead_ns=7)
    cluster = cluster_of(GPU, slow, hosts=[HOST])
    assert busy_ns(GRAPH, COSTS.everywhere(cluster), cluster) == {
        "GPU:0": {"mul": 25},
        "GPU:1": {"mul": 27},
    }


def test_a_cpu_runs_all_ops_itself():
    cluster = cluster_of("d0")
    assert busy_ns(GRAPH, COSTS.everywhere(cluster), cluster) == {"d0": {"mul": 20, "find": 20}}


def test_devices_are_alike_whatever_their_names():
    assert alike(GPU, replace(GPU, name="GPU:1", host="CPU:1"))
    assert not alike(GPU, replace(GPU, name="GPU:1", memory_bytes=1))
