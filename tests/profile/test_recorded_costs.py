"""Names of recorded ops against those of a graph: what each rule joins, and what it leaves."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import edge
from recorded_profiles import copy, gpu, host, kernel, mark, write
from sample_values import costs_of
from summary_graphs import traced_as_tiny

from placement_advisor.analysis.target_costs import TargetHardware
from placement_advisor.cost.table import CostBasis
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.presets import read_hardware
from placement_advisor.profile.recorded_costs import (
    Coverage,
    plain,
    recorded_costs,
    recorded_links,
    same_ops,
)
from placement_advisor.profile.recorded_ops import RecordedOp, RecordedProfile, read_recorded

EVERYWHERE = frozenset({"CPU", "GPU"})


def ran(op, *step_ns, on_device=True):
    name, _, kind = op.partition(":")
    return RecordedOp(name=name, kind=kind, on_device=on_device, step_ns=step_ns)


def recorded(*ops, anonymous_ns=0, copies=None):
    return RecordedProfile(path="log", ops=ops, anonymous_ns=anonymous_ns, copies=copies or {})


def op(name, kind, role=Role.FORWARD, on=EVERYWHERE):
    return Op(name=name, kind=kind, role=role, output_bytes=(8,), device_kinds=frozenset(on))


def chain(*ops):
    return OpGraph(ops, [edge(a.name, b.name) for a, b in pairwise(ops)])


def priced(graph, profile, members=None):
    """Return the cost of each op as text, guessed as 7 ns, and what the profile covers."""
    ops = [op.name for op in graph.ops if op.role is not Role.INPUT]
    guesses = costs_of(dict.fromkeys(ops, 7), CostBasis.GUESSED)
    found, coverage = recorded_costs(graph, profile, guesses, members)
    return {name: f"{cost.time_ns} {cost.basis}" for name, cost in found.costs.items()}, coverage


def test_costs_and_coverage_of_three_ops_by_hand():
    graph = chain(
        op("x", "Placeholder", Role.INPUT),
        op("dense/MatMul", "MatMul"),
        op("dense/Relu", "Relu"),
        op("Softmax", "Softmax"),
    )
    profile = recorded(
        ran("dense_3/MatMul:MatMul", 100, 130, 110),
        ran("dense_3/Relu:Relu", 20, 20, 20),
        ran("extra:Mul", 30, 30, 40),
        anonymous_ns=100,
    )
    costs, coverage = priced(graph, profile)
    assert costs == {
        "dense/MatMul": "110 measured",
        "dense/Relu": "20 measured",
        "Softmax": "7 guessed",
    }
    assert coverage == Coverage(
        time_share=(340 + 60) / (340 + 60 + 100 + 100),
        op_share=2 / 3,
        recorded_only=(("extra:Mul", 30),),
        graph_only=(("Softmax", 7),),
    )


@pytest.mark.parametrize("kind", ["_FusedMatMul", "_MklNativeFusedMatMul", "_MklMatMulWithBias"])
def test_ops_that_were_fused_into_another_are_free(kind):
    names = ("first/MatMul", "dense/MatMul", "dense/BiasAdd", "dense/Relu", "Softmax")
    graph = chain(*(op(name, name.rpartition("/")[2]) for name in names))
    costs, _ = priced(graph, recorded(ran(f"dense/Relu:{kind}", 90)))
    found = ("7 guessed", "0 measured", "0 measured", "90 measured", "7 guessed")
    assert costs == dict(zip(names, found, strict=True))


def test_the_gradient_of_a_bias_is_free_where_it_came_with_that_of_the_filter():
    ops = [op("ReluGrad", "ReluGrad"), op("filter", "Conv2DBackpropFilter")]
    ops += [op("bias", "BiasAddGrad"), op("other", "Neg")]
    graph = OpGraph(ops, [edge("ReluGrad", name) for name in ("filter", "bias", "other")])
    kernel_of_both = ran("filter:_MklNativeConv2DBackpropFilterWithBias", 90)
    costs, _ = priced(graph, recorded(kernel_of_both))
    assert costs == {
        "ReluGrad": "7 guessed",
        "filter": "90 measured",
        "bias": "0 measured",
        "other": "7 guessed",
    }


@pytest.mark.parametrize("kind", ["_FusedConv2D", "_FusedMatMul", "_MklMatMul"])
def test_nothing_is_free_that_was_seen_or_is_of_another_kind(kind):
    # The one MatMul before was recorded itself; there is no convolution.
    graph = chain(op("a/MatMul", "MatMul"), op("a/BiasAdd", "BiasAdd"), op("b/MatMul", "MatMul"))
    costs, _ = priced(graph, recorded(ran("a/MatMul:MatMul", 50), ran(f"b/MatMul:{kind}", 90)))
    assert costs == {"a/MatMul": "50 measured", "a/BiasAdd": "7 guessed", "b/MatMul": "90 measured"}


def test_a_loop_costs_what_its_members_took():
    graph = chain(op("x", "MatMul"), op("lstm/while", "While"))
    profile = recorded(
        ran("lstm_4/while/body/_37/lstm_4/while/cell/MatMul:MatMul", 300),
        ran("lstm_4/while/cond/_36/lstm_4/while/Less:Less", 20),
    )
    members = {"lstm/while/cell/MatMul", "lstm/while/Less", "lstm/while/Identity"}
    costs, coverage = priced(graph, profile, {"lstm/while": members})
    assert costs == {"x": "7 guessed", "lstm/while": "320 measured"}
    assert coverage.time_share == 1.0


def test_host_time_counts_for_ops_without_a_gpu_kernel_alone():
    graph = chain(op("table", "LookupTableFindV2", on={"CPU"}), op("a", "Relu"), op("b", "Relu"))
    table = ran("table:LookupTableFindV2", 60, on_device=False)
    launched = ran("a:Relu", 90, on_device=False)
    costs, coverage = priced(graph, recorded(table, launched, ran("b:Relu", 10)))
    assert costs == {"table": "60 measured", "a": "7 guessed", "b": "10 measured"}
    assert coverage.time_share == 1.0


@pytest.mark.parametrize(("other_ns", "is_refused"), [(100, False), (101, True)])
def test_a_recording_of_another_model_is_refused_with_examples_of_both(other_ns, is_refused):
    graph = chain(op("dense/MatMul", "MatMul"), op("dense/Relu", "Relu"))
    profile = recorded(ran("dense/Relu:Relu", 100), ran("bert/Einsum:Einsum", other_ns))
    if not is_refused:
        priced(graph, profile)
        return
    with pytest.raises(
        AdvisorError,
        match=r"only 50% of the device time in the profile log belongs to ops of the model; "
        r"in the profile are bert/Einsum:Einsum, in the model dense/MatMul",
    ):
        priced(graph, profile)


def test_what_replicas_exchange_is_of_no_model_and_few_of_what_is_left_over_are_named():
    graph = chain(op("a", "Relu"))
    profile = recorded(ran("a:Relu", 100), ran("sgd/CollectiveReduceV2:CollectiveReduceV2", 900))
    _, coverage = priced(graph, profile)
    assert coverage.time_share == 1.0
    assert coverage.recorded_only == ()
    graph = chain(op("a", "Relu"), *(op(f"rest{i}", "Relu") for i in range(9)))
    others = [ran(f"other{i}:Relu", i) for i in range(9)]
    _, coverage = priced(graph, recorded(ran("a:Relu", 100), *others))
    assert coverage.recorded_only == tuple((f"other{i}:Relu", i) for i in (8, 7, 6, 5, 4))
    assert [name for name, _ in coverage.graph_only] == [f"rest{i}" for i in range(5)]


def test_a_link_goes_through_recorded_copies_by_hand(tmp_path):
    # 1 µs and 10 bytes in a ns, that is 10 GB/s.
    copies = [
        copy("MemcpyP2P", size_bytes, at, 1_000 + size_bytes // 10, dest=1)
        for at, size_bytes in [(0, 1_000), (2_000, 100_000), (20_000, 1_000_000)]
    ]
    path = write(
        tmp_path / "vm.xplane.pb",
        host([mark(0, 0, 100)]),
        gpu(0, [kernel("a:Relu", 10, 20)], copies),
        gpu(1),
    )
    links = recorded_links(read_recorded(path))
    found = links["GPU:0", "GPU:1"]
    assert (found.source, found.target) == ("GPU:0", "GPU:1")
    assert found.basis is Basis.MEASURED
    assert found.latency_ns == 1_000
    assert found.bandwidth_bytes_per_s == pytest.approx(10e9)
    assert set(links) == {("GPU:0", "GPU:1")}


@pytest.mark.parametrize(
    ("samples", "target", "makes_one"),
    [
        (((8, 1_000), (1_000, 2_000), (6_000, 9_000)), "GPU:1", True),
        # A GPU that is not in the profile.
        (((8, 1_000), (1_000, 2_000), (6_000, 9_000)), "unknown", False),
        (((1_000, 1_100), (1_000_000, 101_000)), "GPU:1", False),
        (((8, 1_000), (1_000, 1_500), (6_000, 3_000)), "GPU:1", False),
        (((1_000, 100), (2_000, 90), (3_000, 80)), "GPU:1", False),
    ],
)
def test_too_few_or_too_small_sizes_make_no_link(samples, target, makes_one):
    found = recorded_links(recorded(copies={("GPU:0", target): samples}))
    assert bool(found) is makes_one


def graph_of(size_bytes):
    product = Op(name="product", kind="MatMul", output_bytes=(size_bytes,), device_kinds=EVERYWHERE)
    return OpGraph([product], [])


def notes_of(logdir, graph):
    traced = replace(traced_as_tiny(graph), batch_size=32)
    recorded = read_recorded(logdir)
    elsewhere = TargetHardware(label="2xV100", cluster=read_hardware("2xV100"), recorded=recorded)
    return elsewhere.prices(traced).notes


@pytest.fixture
def logdir(tmp_path):
    steps = [mark(step, 1_000 * step, 1_000 * step + 900) for step in range(1, 4)]
    kernels = [kernel("product:MatMul", 1_000 * s + 10, 1_000 * s + 500) for s in range(1, 4)]
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    write(folder / "vm.xplane.pb", host(steps), gpu(0, kernels))
    return tmp_path


def test_times_of_another_step_than_the_recorded_one_are_told(logdir):
    costs, coverage = priced(graph_of(64), read_recorded(logdir))
    assert costs == {"product": "490 measured"}
    assert (coverage.time_share, coverage.op_share) == (1.0, 1.0)
    assert len(notes_of(logdir, graph_of(64))) == 1
    graph_of(64).save(logdir / "graph.json.gz")
    assert len(notes_of(logdir, graph_of(64))) == 1
    another, _ = notes_of(logdir, graph_of(32))
    assert another.startswith("--costs: graph.json.gz in ")
    assert " is the graph of another step at a batch of 32, " in another
    assert "--batch-size" in another


def test_a_variable_of_another_name_is_no_other_step(logdir):
    """As Keras names those of metrics: `total` until a fit has begun, then `mean_error/total`."""

    def with_metric(name):
        handle = Op(name=name, kind="VarHandleOp", role=Role.VARIABLE, variable=name)
        read = Op(name="read", kind="ReadVariableOp", variable=name, output_bytes=(4,))
        return OpGraph([*graph_of(64).ops, handle, read], [])

    with_metric("mean_error/total").save(logdir / "graph.json.gz")
    assert len(notes_of(logdir, with_metric("total"))) == 1


def same(graph, ran):
    """Return which op of the graph each recorded op is, all written as ``name:Kind``."""
    kinds = {name: kind or None for name, _, kind in (op.partition(":") for op in graph)}
    recorded = [(name, kind) for name, _, kind in (op.partition(":") for op in ran)]
    return {f"{name}:{kind}": op for (name, kind), op in same_ops(kinds, recorded).items()}


def test_a_model_that_was_built_as_the_second_of_its_process_by_hand():
    # What Keras 3 called one model in a process of its own, and in the `fit` of another process.
    # The dense_2 of the recording is the graph's dense_1, although the graph has a dense_2.
    pairs = {
        "functional_1/dense_1_1/Relu:Relu": "functional_1_1/dense_2_1/Relu:_MklNativeFusedMatMul",
        "functional_1/dense_2_1/MatMul:MatMul": "functional_1_1/dense_3_1/MatMul:_MklMatMul",
        "functional_1/lstm_1/transpose:Transpose": "functional_1_1/lstm_3_1/transpose:Transpose",
        "gradient_tape/functional_1/dense_2_1/MatMul/MatMul_1:MatMul": (
            "gradient_tape/functional_1_1/dense_3_1/MatMul/MatMul_1:MatMul"
        ),
        "adam/Square_5:Square": "adam_1/Square_5:Square",
        "AssignVariableOp:AssignVariableOp": "AssignVariableOp:AssignVariableOp",
    }
    ran = [f"StatefulPartitionedCall/{op}" for op in pairs.values()]
    found = same([*pairs, "functional_1/dense_1_1/MatMul:MatMul"], [*ran, "optional:Optional"])
    assert found == dict(zip(ran, [op.partition(":")[0] for op in pairs], strict=True))


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("StatefulPartitionedCall/model/dense/MatMul", "model/dense/MatMul"),
        ("StatefulPartitionedCall_1/PartitionedCall/dense/MatMul", "dense/MatMul"),
        ("while/body/_1/while/StatefulPartitionedCall/dense/MatMul", "dense/MatMul"),
        ("Call/lstm/while/body/_37/lstm/while/cell/MatMul", "lstm/while/cell/MatMul"),
        ("lstm/while/cond/_36/lstm/while/Less", "lstm/while/Less"),
        ("cond/then/_4/cond/inner/else/_9/cond/inner/Add", "cond/inner/Add"),
        ("model/ArithmeticOptimizer/FoldTransposeIntoMatMul_MatMul_1", "model/MatMul_1"),
        ("ArithmeticOptimizer/ReplaceMulWithSquare_mul_2", "mul_2"),
        ("a/ArithmeticOptimizer/SimplifyAggregation_Mul_AddN", "a/AddN"),
        # A layer may be called so.
        ("ArithmeticOptimizer/a_b/MatMul", "ArithmeticOptimizer/a_b/MatMul"),
        ("body/then/MatMul", "body/then/MatMul"),
        ("model/PartitionedCall/MatMul", "model/PartitionedCall/MatMul"),
        ("while/MatMul", "while/MatMul"),
    ],
)
def test_what_a_call_puts_before_a_name_is_taken_off(recorded, expected):
    assert plain(recorded) == expected


@pytest.mark.parametrize("shift", [0, 1, 7])
def test_layers_that_are_numbered_from_another_start_are_the_same_in_their_order(shift):
    # Numbers go by their value: 10 comes after 9.
    graph, ran = (
        [f"dense{f'_{i}' if i else ''}/MatMul:MatMul" for i in range(first, first + 12)]
        for first in (0, shift)
    )
    assert same(graph, ran) == {
        theirs: ours.removesuffix(":MatMul") for ours, theirs in zip(graph, ran, strict=True)
    }


@pytest.mark.parametrize(
    ("graph", "ran"),
    [
        # Which two of three?
        (["dense", "dense_1", "dense_2"], ["dense_2", "dense_3"]),
        # One of two layers that ran in one step, of which the graph has one.
        (["dense"], ["dense", "dense_1"]),
        # Two calls that ran.
        (["dense"], ["PartitionedCall/dense", "PartitionedCall_1/dense"]),
        # One more scope around either of two.
        (["dense"], ["left/dense", "right/dense"]),
        (["left/dense", "right/dense"], ["dense"]),
        # Two more scopes.
        (["dense"], ["a/b/dense"]),
        # Ops have no numbers of the process, nor have scopes that are named after one.
        (["dense/MatMul:MatMul"], ["dense/MatMul_1:MatMul"]),
        (["Sub_1:MatMul", "Sub_1"], ["Sub_2"]),
    ],
)
def test_what_could_be_two_ops_is_none(graph, ran):
    graph, ran = (
        [op if ":" in op else f"{op}/MatMul:MatMul" for op in ops] for ops in (graph, ran)
    )
    assert same(graph, ran) == {}


def test_what_has_the_graphs_own_name_is_the_op():
    calls = ["PartitionedCall/dense/MatMul:MatMul", "PartitionedCall_1/dense/MatMul:MatMul"]
    assert same(calls, calls) == {call: call.removesuffix(":MatMul") for call in calls}
    graph = ["dense/MatMul:MatMul", "dense_1/MatMul:MatMul", "dense_2/MatMul:MatMul"]
    assert same(graph, ["dense_1/MatMul:MatMul"]) == {"dense_1/MatMul:MatMul": "dense_1/MatMul"}


@pytest.mark.parametrize(
    ("graph", "ran"),
    [
        ("dense/MatMul", "model/dense/MatMul"),
        ("model/dense/MatMul", "dense/MatMul"),
        ("gradient_tape/dense/MatMul", "gradient_tape/model/dense/MatMul"),
        ("dense/MatMul", "while/body/_3/while/dense_4/MatMul"),
    ],
)
def test_one_more_scope_around_the_step_is_seen_through(graph, ran):
    # With another op that both sides have as it is.
    found = same([f"{graph}:MatMul", "Add:AddV2"], [f"{ran}:MatMul", "Add:AddV2"])
    assert found == {f"{ran}:MatMul": graph, "Add:AddV2": "Add"}


@pytest.mark.parametrize(
    ("kind", "ran_kind", "agree"),
    [
        ("MatMul", "MatMul", True),
        ("MatMul", "_MklMatMul", True),
        ("Relu", "_FusedConv2D", True),
        ("Add", "AddV2", True),
        ("BatchMatMulV2", "BatchMatMulV3", True),
        ("Pow", "Square", True),
        ("AddV2", "Sub", True),
        ("Square", "Pow", False),
        ("MatMul", "Relu", False),
        ("", "Relu", True),
    ],
)
def test_kinds_have_to_agree_where_they_are_known(kind, ran_kind, agree):
    assert bool(same([f"a:{kind}"], [f"a:{ran_kind}"])) is agree


_PARTS = st.sampled_from(["dense", "dense_1", "dense_2", "while", "MatMul", "MatMul_1", "model"])
_NAMES = st.lists(_PARTS, min_size=1, max_size=4).map("/".join)


@given(st.sets(_NAMES, max_size=12))
def test_a_graph_that_was_recorded_under_its_own_names_is_all_joined_to_itself(names):
    ran = [(name, "MatMul") for name in names]
    assert same_ops(dict(ran), ran) == {op: op[0] for op in ran}


@given(st.sets(_NAMES, max_size=12), st.sets(_NAMES, max_size=12))
def test_no_op_is_joined_twice(names, ran):
    found = same_ops(dict.fromkeys(names, "MatMul"), [(name, "MatMul") for name in ran])
    assert len(set(found.values())) == len(found)
    assert set(found.values()) <= names
    assert {name for name, _ in found} <= ran
