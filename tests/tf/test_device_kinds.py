"""Where ops can run, by hand from TensorFlow's registry of kernels."""

import pytest

from placement_advisor.processes.calls import RemoteModule

registered_kernels = RemoteModule("registered_kernels")
_BOTH = ["CPU", "GPU"]
_GATHERED = {"Tparams": "float32", "Tindices": "int32"}


@pytest.mark.parametrize(
    ("kind", "attributes", "kinds", "host_outputs"),
    [
        ("LookupTableFindV2", {"Tin": "string", "Tout": "int64"}, ["CPU"], ()),
        ("MatMul", {"T": "float32"}, _BOTH, ()),
        ("MatMul", {"T": "complex64"}, _BOTH, ()),
        ("MatMul", {"T": "int32"}, ["CPU"], ()),  # GPU: floats and complex numbers alone.
        ("MatMul", {"T": "string"}, [], ()),
        ("AddV2", {"T": "float32"}, _BOTH, ()),
        ("AddV2", {"T": "int32"}, _BOTH, (0,)),
        ("Sum", {"T": "float32", "Tidx": "int32"}, _BOTH, ()),
        ("Sum", {"T": "int32", "Tidx": "int32"}, _BOTH, (0,)),
        ("Sum", {"T": "int8", "Tidx": "int32"}, ["CPU"], ()),
        ("Cast", {"SrcT": "float32", "DstT": "int32"}, _BOTH, ()),
        ("StringJoin", {"N": 2}, ["CPU"], ()),
        ("Const", {"dtype": "float32"}, _BOTH, ()),
        ("Const", {"dtype": "int32"}, _BOTH, (0,)),
        ("Const", {"dtype": "string"}, ["CPU"], ()),
        ("Shape", {"T": "float32"}, _BOTH, (0,)),
        ("Reshape", {"T": "float32", "Tshape": "int32"}, _BOTH, ()),  # Its shape is an input.
        ("Reshape", {"T": "int32", "Tshape": "int32"}, _BOTH, (0,)),
        ("Reshape", {"T": "string", "Tshape": "int32"}, ["CPU"], ()),
        ("VarHandleOp", {"dtype": "float32"}, _BOTH, (0,)),
        ("VarHandleOp", {"dtype": "int32"}, ["CPU"], ()),  # For any device, but not of int32.
        ("NoOp", {}, _BOTH, ()),  # Registered for any device and no other.
        ("Placeholder", {"dtype": "float32"}, _BOTH, ()),
        ("CudnnRNN", {"T": "float32"}, ["GPU"], ()),
        # No kernel: TensorFlow rewrites it.
        ("AccumulateNV2", {"T": "float32", "N": 2}, _BOTH, ()),
        # Outputs that are lists: as many ports as the node says.
        ("ShapeN", {"T": "float32", "N": 3}, _BOTH, (0, 1, 2)),
        ("Unpack", {"T": "int32", "num": 2}, _BOTH, (0, 1)),
        ("Unpack", {"T": "float32", "num": 2}, _BOTH, ()),
        # The output called idx comes second.
        ("Unique", {"T": "int32", "out_idx": "int32"}, _BOTH, ()),
        # Without a word in the registry: texts and handles always, int32 where functions are run.
        ("IdentityN", {"T": ["float32", "string", "resource", "int32"]}, _BOTH, (1, 2)),
        ("While", {"T": ["float32", "string", "resource", "int32"]}, _BOTH, (1, 2, 3)),
        # Not types alone: the GPU kernels of GatherNd do not check their indices.
        ("GatherNd", _GATHERED, _BOTH, ()),
        ("GatherNd", {**_GATHERED, "bad_indices_policy": b"ERROR"}, ["CPU"], ()),
        # It has a kernel for GPUs, and Python computes on the host all the same.
        ("EagerPyFunc", {"Tin": ["float32"], "Tout": ["float32"]}, ["CPU"], ()),
    ],
)
def test_kernels_and_what_they_leave_in_host_memory_by_hand(
    loader, kind, attributes, kinds, host_outputs
):
    found = loader.call(registered_kernels.placement, kind, attributes)
    assert found == (kinds, host_outputs)


def test_an_attribute_that_the_node_leaves_out_has_its_default(loader):
    ask = registered_kernels.placement
    # The type of a shape is int32 if nothing is said.
    for kind, said, default in [
        ("Reshape", {"T": "int32"}, {"Tshape": "int32"}),
        ("Shape", {"T": "string"}, {"out_type": "int32"}),
    ]:
        full = loader.call(ask, kind, {**said, **default})
        assert loader.call(ask, kind, said) == full
        assert full[0]


@pytest.mark.parametrize(
    ("graph", "kind", "kinds"),
    [
        ("plain_loop", "StatelessWhile", _BOTH),
        ("loop_with_lookup", "While", ["CPU"]),
        ("loop_with_lookup_in_its_condition", "While", ["CPU"]),
        ("loop_with_conditional_with_call_of_lookup", "While", ["CPU"]),
        ("switch_with_lookup", "Case", ["CPU"]),
    ],
)
def test_a_composite_runs_where_all_that_it_holds_can_run(loader, graph, kind, kinds):
    found = loader.call(registered_kernels.in_graph, graph)
    assert found[kind][0] == kinds
    if kinds == ["CPU"]:
        assert found[kind][1] == ()


def test_functions_that_call_each_other_in_a_circle_share_their_kinds(loader):
    found = loader.call(registered_kernels.circle_of_functions)
    assert found == {"ping": ["CPU"], "pong": ["CPU"], "alone": _BOTH}


def test_what_a_gpu_cannot_run_is_placed_on_the_host_with_all_that_shares_its_variable(loader):
    gpu, cpu = (f"/job:worker/replica:0/task:1/device:{its}" for its in ("GPU:1", "CPU:0"))
    device_of = loader.call(registered_kernels.placed_on_a_gpu, gpu)
    on_host = {name for name, device in device_of.items() if device == cpu}
    # int32 has no MatMul and no variable on a GPU, a text no constant. A read of the variable has
    # a kernel for any type, but stands where the variable does. What both sides read is copied.
    alone = {"int_product", "words", "count", "count_write", "count_read"}
    assert on_host - {"counts", "counts/copy_0"} == alone
    assert {device_of["counts"], device_of["counts/copy_0"]} == {gpu, cpu}
    assert {device_of[name] for name in device_of.keys() - on_host} == {gpu}


def test_the_cpu_runs_what_has_a_cpu_kernel_and_nothing_else(loader):
    types = ["float16", "float32", "complex64", "qint8"]
    types += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16)] + ["int32"]
    different = loader.call(registered_kernels.told_and_done_on_this_cpu, types)
    assert different == []


def test_answers_for_ops_that_come_again_are_remembered(loader):
    count = 20_000
    took_s = loader.call(registered_kernels.seconds_for, count)
    # Some 3 µs each here, against 700 µs for asking the registry; a wide margin for slow machines.
    assert took_s / count < 50e-6
