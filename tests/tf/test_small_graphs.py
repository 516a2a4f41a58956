"""What the tracer makes of small graphs, by hand: rewrites, layers, loops and lists."""

import operator

import numpy as np
import pytest
from hand_made_nodes import SCALAR, nodes_of, written
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.graph.op_work.signature import TensorSpec
from placement_advisor.tf.trace import flat_step
from placement_advisor.tf.trace.constant_values import ListContent, after_trips, note_list
from placement_advisor.tf.trace.loops import Induction, Loop, folded, frames, trips_of
from placement_advisor.tf.trace.op_layers import Part, parts_of


def ops_of(nodes):
    """Return nodes as `nodes_of` takes them."""
    return {
        node.name: (
            node.kind,
            [f"{p.name}:{port}" if port else p.name for p, port in node.inputs]
            + [f"^{before.name}" for before in node.controls],
        )
        for node in nodes
    }


def test_constants_wait_for_nothing_but_in_a_loop_and_their_readers_wait_instead():
    nodes = nodes_of(
        "write = AssignVariableOp; first = Const ^write; second = Const ^first; "
        "free = Const; sum = AddV2 second free ^free; after = NoOp ^first ^write"
    )
    flat_step.lift_control_inputs_of_constants(nodes)
    ops = ops_of(nodes)
    assert ops["first"] == ops["second"] == ("Const", [])
    assert ops["sum"] == ("AddV2", ["second", "free", "^write"])
    assert ops["after"] == ("NoOp", ["^write"])

    nodes = nodes_of("enter = Enter; one = Const ^enter; sum = AddV2 enter one")
    flat_step.lift_control_inputs_of_constants(nodes, {id(node) for node in nodes})
    assert ops_of(nodes)["one"] == ("Const", ["^enter"])


def test_outputs_do_not_wait_for_updates_and_idle_barriers_go():
    nodes = nodes_of(
        "loss = Mean; update = AssignVariableOp; all_updates = NoOp ^update; "
        "output = Identity loss ^all_updates; waits_for_nothing = NoOp; "
        "read = ReadVariableOp ^waits_for_nothing ^update; barrier = NoOp ^update; "
        "read_after = ReadVariableOp ^barrier"
    )
    assert ops_of(flat_step.drop_barriers(nodes, {"output"}, {"update"})) == written(
        "loss = Mean; update = AssignVariableOp; output = Identity loss; "
        "read = ReadVariableOp ^update; barrier = NoOp ^update; "
        "read_after = ReadVariableOp ^barrier"
    )


def test_readers_of_an_identity_of_many_read_what_it_was_given():
    nodes = nodes_of(
        "a = MatMul; b = TopKV2; write = AssignVariableOp; all = IdentityN a b:1 ^write; "
        "Func/call/output/_1 = Identity all:1; square = Mul all all:1; "
        "root = Sqrt Func/call/output/_1; after = NoOp ^all; kept = IdentityN a"
    )
    stay, targets = flat_step.bypass_identities(nodes, {"kept"}, ("all", "write", "after"))
    assert ops_of(stay) == written(
        "a = MatMul; b = TopKV2; write = AssignVariableOp; square = Mul a b:1 ^write; "
        "root = Sqrt b:1 ^write; after = NoOp ^a ^b ^write; kept = IdentityN a"
    )
    assert targets == ("write", "after")


def test_a_read_whose_value_nobody_takes_goes_and_what_it_waited_for_stays():
    nodes = nodes_of(
        "variable = VarHandleOp; write = AssignVariableOp variable; "
        "unread = ReadVariableOp variable ^write; "
        "again = ReadVariableOp variable ^unread; "
        "update = AssignAddVariableOp variable ^again; output = ReadVariableOp variable; "
        "read = ReadVariableOp variable; sum = AddV2 read"
    )
    assert ops_of(flat_step.drop_unread_reads(nodes, {"output"})) == written(
        "variable = VarHandleOp; write = AssignVariableOp variable; "
        "update = AssignAddVariableOp variable ^write; output = ReadVariableOp variable; "
        "read = ReadVariableOp variable; sum = AddV2 read"
    )


_RESIDUAL = written(
    "x = Placeholder; m/a/MatMul = MatMul x; m/b/MatMul = MatMul m/a/MatMul; "
    "m/add = AddV2 m/a/MatMul m/b/MatMul; m/c/MatMul = MatMul m/add; "
    "m/add_1 = AddV2 m/add m/c/MatMul"
)
_EXPERTS = written(
    "x = Placeholder; m/gate/MatMul = MatMul x; m/Softmax = Softmax m/gate/MatMul; "
    "m/TopKV2 = TopKV2 m/Softmax; m/dispatch = Einsum m/TopKV2 x; "
    "m/expert/MatMul = MatMul m/dispatch; m/combine = Einsum m/expert/MatMul m/TopKV2:1"
)
_CASTS = written(
    "user = Placeholder; item = Placeholder; m/Cast = Cast user; m/Cast_1 = Cast item; "
    "m/users/Gather = GatherV2 m/Cast; m/items/Gather = GatherV2 m/Cast_1; "
    "m/mul = Mul m/users/Gather m/items/Gather"
)
_READING = written(
    "x = Placeholder; read = ReadVariableOp; m/MatMul = MatMul x read; "
    "m/dense/MatMul = MatMul m/MatMul"
)


@pytest.mark.parametrize(
    ("ops", "own", "parts"),
    [
        # Each residual addition is a part; what is connected without leaving is one.
        (_RESIDUAL, ["m/add", "m/add_1"], [["m/add"], ["m/add_1"]]),
        (
            _EXPERTS,
            ["m/Softmax", "m/TopKV2", "m/dispatch", "m/combine"],
            [["m/Softmax", "m/TopKV2", "m/dispatch"], ["m/combine"]],
        ),
        # Casts of inputs are no parts; what reads inputs and a variable is a layer.
        (_CASTS, ["m/Cast", "m/Cast_1", "m/mul"], [["m/mul"]]),
        (_READING, ["m/MatMul"], [["m/MatMul"]]),
    ],
    ids=["residual", "experts", "casts", "reading"],
)
def test_ops_of_a_model_itself_are_parts(ops, own, parts):
    nodes = [node for node in nodes_of(ops) if node.kind != "Placeholder"]
    found = parts_of(nodes, dict.fromkeys(own, "m"), variables={"read": "v"})
    assert [[op.name for op in part.ops] for part in found] == parts


def test_a_part_is_named_after_its_first_op_and_known_by_scopes_of_its_own():
    first, second, other = nodes_of("m/scale/Mul = Mul; m/Tanh = Tanh; m/scale/Mul_1 = Mul")
    part = Part(scope="m", ops=(first, second))
    assert part.short_name == "scale"
    assert part.keys(others=()) == {"m/scale", "m/Tanh"}
    # Where a scope holds other ops as well, the op's own name is the key.
    assert part.keys(others={other.name}) == {"m/scale/Mul", "m/Tanh"}


_COMPARE = {
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
}


def _trips(ops, known):
    """Return trips while the last op holds; ``known`` gives start and step of tensors."""
    inductions = {name: Induction(start=a, step=b) for name, (a, b) in known.items()}
    leaves = "".join(f"{name} = Placeholder; " for name in known)
    return trips_of(nodes_of(leaves + ops)[-1], lambda node, _: inductions.get(node.name))


def test_trips_end_with_the_first_condition_that_fails_and_are_unknown_without_one():
    # i = 0, 1, … is below 10 ten times; j = 4, 7, 10 is not above 10 three times.
    ops = (
        "below = Less i ten; not_above = LessEqual j ten; both = LogicalAnd below not_above; "
        "go = Identity both"
    )
    assert _trips(ops, {"i": (0, 1), "j": (4, 3), "ten": (10, 0)}) == 3
    assert _trips(f"j = Placeholder; {ops}", {"i": (0, 1), "ten": (10, 0)}) is None
    # What fails at once ends the loop whatever the other says.
    assert _trips(f"j = Placeholder; {ops}", {"i": (12, 1), "ten": (10, 0)}) == 0
    assert _trips("data = Placeholder; go = Any data", {}) is None


@pytest.mark.parametrize(("start", "step", "limit", "trips"), [(0, 1, 5, 5), (9, -2, 0, 5)])
def test_a_range_of_autograph_tests_the_sign_of_its_step(start, step, limit, trips):
    ops = (
        "up = GreaterEqual delta zero; below = Less i limit; going_up = LogicalAnd up below; "
        "down = Less delta zero; above = Greater i limit; going_down = LogicalAnd down above; "
        "go = LogicalOr going_up going_down"
    )
    known = {"i": (start, step), "limit": (limit, 0), "delta": (step, 0), "zero": (0, 0)}
    assert _trips(ops, known) == trips


@given(
    kind=st.sampled_from(sorted(_COMPARE)),
    start=st.integers(-30, 30),
    step=st.integers(-5, 5),
    limit=st.integers(-30, 30),
)
def test_trips_are_those_of_a_loop_that_counts(kind, start, step, limit):
    counted, i = 0, start
    while _COMPARE[kind](i, limit) and counted < 100:
        counted, i = counted + 1, i + step
    expected = None if counted == 100 else counted
    assert _trips(f"go = {kind} i limit", {"i": (start, step), "limit": (limit, 0)}) == expected


# for (i = 0; i < 10; i += 3) x = x * scale; the result is used outside.
_LOOP = written(
    "x = Placeholder; start = Const; scale = ReadVariableOp; enter_i = Enter start; "
    "enter_x = Enter x; enter_scale = Enter scale; i = Merge enter_i next_i; "
    "value = Merge enter_x next_x; limit = Const ^i; less = Less i limit; "
    "go = LoopCond less; switch_i = Switch i go; switch_x = Switch value go; "
    "again_i = Identity switch_i:1; again_x = Identity switch_x:1; step = Const ^again_i; "
    "add = AddV2 again_i step; mul = Mul again_x enter_scale; next_i = NextIteration add; "
    "next_x = NextIteration mul; exit_i = Exit switch_i; exit_x = Exit switch_x; "
    "result = Neg exit_x"
)


def _attributes(limit):
    numbers = {"start": 0, "limit": limit, "step": 3}
    found = {name: {"value": np.array(number, np.int32)} for name, number in numbers.items()}
    enters = {name: {"frame_name": "rnn/while_context"} for name in _LOOP if "enter" in name}
    return {**found, **enters}


def test_a_loop_is_one_op_that_takes_what_enters_and_gives_what_leaves():
    nodes = nodes_of(_LOOP, _attributes(10))
    before = ops_of(nodes)
    found = folded(nodes)
    assert ops_of(nodes) == before
    assert ops_of(found.nodes) == written(
        "x = Placeholder; start = Const; scale = ReadVariableOp; rnn = While start x scale; "
        "result = Neg rnn"
    )
    inside = tuple(n for n in _LOOP if n not in ("x", "start", "scale", "result"))
    assert found.loops == {"rnn": Loop(members=inside, outputs=(("exit_x", 0),))}
    assert [node.name for node in found.bodies["rnn"]] == list(inside)

    ops = {**_LOOP, "limit": ("ReadVariableOp", ["^i"])}
    assert folded(nodes_of(ops, _attributes(10))).trips == {}


@pytest.mark.parametrize(("limit", "trips"), [(10, 4), (9, 3), (1, 1), (0, 0)])
def test_trips_are_counted_from_start_step_and_limit(limit, trips):
    assert folded(nodes_of(_LOOP, _attributes(limit))).trips == {"rnn": trips}


def test_a_loop_within_a_loop_belongs_to_the_outer_one():
    inner = written(
        "enter_y = Enter again_x; y = Merge enter_y next_y; more = LoopCond enter_y; "
        "switch_y = Switch y more; next_y = NextIteration switch_y:1; "
        "exit_y = Exit switch_y; mul = Mul exit_y enter_scale"
    )
    attributes = {**_attributes(10), "enter_y": {"frame_name": "rnn/inner"}}
    nodes = nodes_of({**_LOOP, **inner}, attributes)
    around = {node.name: frames(nodes).get(id(node), ()) for node in nodes}
    assert around["exit_y"] == around["y"] == ("rnn/while_context", "rnn/inner")
    assert around["mul"] == ("rnn/while_context",)
    found = folded(nodes)
    assert [node.name for node in found.nodes if node.kind == "While"] == ["rnn"]
    assert set(inner) <= set(found.loops["rnn"].members)


ROW = TensorSpec((2, 3), "float32", 4)
_FLOATS = {"element_dtype": "float32"}
_SHAPE = {"value": np.array([2, 3], np.int32)}
_ANY_SHAPE = {"value": np.array(-1, np.int32)}


def _noted(ops, shape):
    """Return what lists hold, and the specs that the ops then have."""
    attributes = {"shape": shape, "reserved": _FLOATS, "empty": _FLOATS}
    nodes = nodes_of(ops, attributes, {"row": [ROW], "rows": [TensorSpec((5, 2, 3), "float32", 4)]})
    lists = {}
    for node in nodes:
        note_list(node, lists, {("five", 0): 5})
    return {n: c for (n, _), c in lists.items()}, {n.name: n.outputs[0] for n in nodes}


def test_a_list_has_the_length_and_shape_that_it_is_made_with_and_of_others_of_its_sum():
    ops = "shape = Const; five = Const; reserved = TensorListReserve shape five"
    found, specs = _noted(ops, _SHAPE)
    assert found == {"reserved": ListContent((2, 3), "float32", 5)}
    assert specs["reserved"] == TensorSpec((5, 2, 3), "variant", 4)
    assert specs["reserved"].size_bytes == 5 * 2 * 3 * 4

    found, specs = _noted(
        "shape = Const; unknown = Placeholder; rows = Placeholder; "
        "given = TensorListFromTensor rows shape; "
        "reserved = TensorListReserve shape unknown; sum = AddN reserved given",
        _ANY_SHAPE,
    )
    assert found["sum"] == found["reserved"] == found["given"] == ListContent((2, 3), "float32", 5)
    assert specs["reserved"].size_bytes == 5 * 2 * 3 * 4


def test_what_is_put_into_a_list_tells_the_shape_of_its_items_unless_they_differ():
    found, specs = _noted(
        "shape = Const; five = Const; row = Placeholder; rows = Placeholder; "
        "reserved = TensorListReserve shape five; set = TensorListSetItem reserved five row; "
        "empty = EmptyTensorList shape five; pushed = TensorListPushBack empty row; "
        "twice = TensorListPushBack pushed row; popped = TensorListPopBack twice shape; "
        "mixed = TensorListPushBack pushed rows",
        _ANY_SHAPE,
    )
    assert found["reserved"] == ListContent(None, "float32", 5)
    assert specs["reserved"] == SCALAR  # As it was: its size is not known.
    assert specs["set"] == TensorSpec((5, 2, 3), "variant", 4)
    assert found["empty"] == ListContent(None, "float32", 0)
    assert [found[name].length for name in ("pushed", "twice", "popped")] == [1, 2, 1]
    assert found["mixed"] == ListContent(None, "float32", 2)


@given(length=st.integers(0, 9), added=st.integers(-3, 3), trips=st.integers(0, 9))
def test_a_loop_adds_to_a_list_on_each_trip(length, added, trips):
    first = ListContent((2,), "float32", length)
    last = after_trips(first, ListContent((2,), "float32", length + added), trips)
    assert last.length == length + added * trips


def test_without_trips_the_length_is_known_only_if_it_does_not_change():
    five, six = (ListContent((2,), "float32", length) for length in (5, 6))
    assert after_trips(five, five, None).length == 5
    assert after_trips(five, six, None).length is None


def test_a_list_that_grows_when_it_is_written_has_an_unknown_size(trace_source):
    graph = trace_source("""
inputs = (tf.ones((3, 4)),)
@tf.function
def infer(x):
    items = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    for i in tf.range(7):
        items = items.write(i, x)
    return items.stack()
""").graph
    (loop,) = [op for op in graph.ops if op.kind == "StatelessWhile"]
    assert loop.trips == 7
    assert None in loop.output_bytes


def test_what_a_loop_keeps_for_its_gradient_has_the_size_that_it_has_when_it_runs(trace_source):
    graph = trace_source("""
weights = tf.Variable(tf.eye(4))
inputs = (tf.ones((3, 4)),)
@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        for _ in tf.range(7):
            x = tf.tanh(x @ weights)
        loss = tf.reduce_sum(x)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss
""").graph
    (loop,) = [op for op in graph.ops if op.kind == "While"]
    kept = 7 * 3 * 4 * 4  # x, or what tanh returned, on each of seven trips.
    assert kept in loop.output_bytes
    assert graph.edge_bytes_known_share == 1.0
    assert all(op.bytes_accessed is not None for op in graph.ops)
