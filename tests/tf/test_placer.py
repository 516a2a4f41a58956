"""Placed graphs, moved ops and crossings of small graphs, by hand."""

from __future__ import annotations

from placement_advisor.processes.calls import RemoteModule
from placement_advisor.profile.worker_steps import PlannedCopy

graph_defs = RemoteModule("graph_defs")


def test_each_device_has_its_own_copy_of_the_constants_that_it_reads(child):
    ops = child.call(
        graph_defs.placed,
        {
            "two": ("Const", []),
            "unread": ("Const", []),
            "a": ("Neg", ["two"]),
            "b": ("Mul", ["two", "two:0"]),
            "c": ("AddV2", ["a", "b"]),
        },
        {"a": "d0", "b": "d1", "c": "d1"},
        {},
    )
    assert ops == {
        "two": ("Const", [], "d0"),
        "two/copy_0": ("Const", [], "d1"),
        "unread": ("Const", [], "host"),
        "a": ("Neg", ["two"], "d0"),
        "b": ("Mul", ["two/copy_0", "two/copy_0:0"], "d1"),
        "c": ("AddV2", ["a", "b"], "d1"),
    }


def test_an_input_is_read_from_a_variable_on_its_device(child):
    ops = child.call(
        graph_defs.placed,
        {"x": ("Placeholder", []), "y": ("Neg", ["x"])},
        {"x": "d1", "y": "d0"},
        {"x": (2, 3)},
    )
    assert ops == {
        "x": ("ReadVariableOp", ["x/resident"], "d1"),
        "x/resident": ("VarHandleOp", [], "d1"),
        "y": ("Neg", ["x"], "d0"),
    }


def test_an_op_without_a_gpu_kernel_goes_to_the_cpu_of_the_gpus_process(child):
    gpu = "/job:worker/replica:0/task:1/device:GPU:0"
    ops = child.call(
        graph_defs.placed,
        {"ids": ("LookupTableFindV2", []), "product": ("MatMul", [])},
        {"ids": gpu, "product": gpu},
        {},
    )
    assert ops["ids"][2] == "/job:worker/replica:0/task:1/device:CPU:0"
    assert ops["product"][2] == gpu


def test_moved_ops_are_those_that_stand_elsewhere_than_planned(child):
    there = "/job:worker/replica:0/task:{}/device:CPU:0"
    planned = {"stays": there.format(0), "moves": there.format(1), "not_run": there.format(1)}
    executed = {"stays": there.format(0), "moves": there.format(0), "_send_1": there.format(1)}
    moved = child.call(graph_defs.moved, executed, planned)
    assert moved == ("moves: task 1 CPU:0 → task 0 CPU:0",)


def test_what_goes_from_a_gpu_to_the_cpu_of_its_process_crosses_no_devices(child):
    """Of two processes with a GPU each, one looks up ids on its CPU and both take them."""
    task = "/job:worker/replica:0/task:{}/device:{}:0".format

    def ends(target: str) -> dict[str, str]:
        return {"tensor_name": target, "send_device": task(0, "CPU"), "recv_device": target}

    found = child.call(
        graph_defs.crossings,
        [
            [
                ("ids", "LookupTableFindV2", [], {}),
                ("send_here", "_Send", ["ids"], ends(task(0, "GPU"))),
                ("send_there", "_Send", ["ids"], ends(task(1, "GPU"))),
                ("receive_here", "_Recv", [], ends(task(0, "GPU"))),
            ],
            [("receive_there", "_Recv", [], ends(task(1, "GPU")))],
        ],
        {task(i, kind): f"{'ab'[i]}:0" for i in range(2) for kind in ("GPU", "CPU")},
        {("ids", 0): 8},
    )
    assert found == (
        PlannedCopy(
            send_node="send_there",
            recv_node="receive_there",
            producer="ids",
            port=0,
            source="a:0",
            target="b:0",
            size_bytes=8,
        ),
    )


def test_crossings_tell_tensors_from_signals_and_leave_the_client_out(child):
    def ends(tensor: str) -> dict[str, str]:
        return {"tensor_name": tensor, "send_device": "D0", "recv_device": "D1"}

    crossings = child.call(
        graph_defs.crossings,
        [
            [
                ("split", "Split", [], {}),
                ("write", "AssignVariableOp", [], {}),
                ("write/_1", "Const", ["^write"], {}),
                ("send_signal", "_Send", ["write/_1"], ends("edge_1_write")),
                ("send_part", "_Send", ["split:1"], ends("edge_2_split")),
                ("send_out", "_Send", ["split"], {**ends("split:0"), "client_terminated": "yes"}),
            ],
            [
                ("receive_signal", "_Recv", [], ends("edge_1_write")),
                ("receive_part", "_HostRecv", [], ends("edge_2_split")),
            ],
        ],
        {"D0": "worker:0", "D1": "worker:1"},
        {("split", 0): 8, ("split", 1): 12},
    )
    between = {"source": "worker:0", "target": "worker:1"}
    assert crossings == (
        PlannedCopy(
            send_node="send_signal",
            recv_node="receive_signal",
            producer="write",
            port=-1,
            size_bytes=0,
            **between,
        ),
        PlannedCopy(
            send_node="send_part",
            recv_node="receive_part",
            producer="split",
            port=1,
            size_bytes=12,
            **between,
        ),
    )
