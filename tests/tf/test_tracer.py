"""Traced steps as op graphs: sizes, roles, layers, state, lines; and what cannot be traced."""

from collections import Counter
from pathlib import Path

import pytest
from traced_models import IMPORTS

from placement_advisor.errors import ModelError
from placement_advisor.graph.layer_structure import counting_layers, towers
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import Arithmetic, Kernel, KernelFamily, Role
from placement_advisor.processes.calls import CallFailure
from placement_advisor.tf.answers import LeftOut
from placement_advisor.tf.calls import native_step

_FLOAT_BYTES = 4
_RESIDUAL_TOWERS = """
def tower(name):
    ids = keras.Input((4,), 8, dtype="int32", name=f"{name}_ids")
    x = keras.layers.Embedding(10, 6, name=name)(ids)
    x = x + keras.layers.Dense(6, name=f"{name}_dense")(x)
    return ids, keras.layers.Dense(6, name=f"{name}_top")(x)
(left_ids, left), (right_ids, right) = tower("left"), tower("right")
model = keras.Model([left_ids, right_ids], left * right, name="residual_model")
model.compile("sgd", "mse")
inputs = ((np.ones((8, 4), "int64"), np.ones((8, 4), "int64")), np.ones((8, 4, 6), "float32"))
"""


def _of(graph, **fields):
    return [op for op in graph.ops if all(getattr(op, key) == fields[key] for key in fields)]


def test_layers_of_two_towers_with_their_slots_and_the_counter_of_steps(traced):
    graph = traced("two_tower").graph
    towers = {f"{t}_{kind}" for t in ("user", "item") for kind in ("conv", "pool", "flatten")}
    shared = {"word_ids", "word_ids@2", "embedding", "embedding@2"}
    top = {"user_dense", "item_dense", "rating", "compile_loss/mse"}
    assert set(graph.layers()) == towers | shared | top
    for layer in towers | {"embedding", "embedding@2", "rating", "user_dense", "item_dense"}:
        assert _of(graph, layer=layer, role=Role.FORWARD)
        assert _of(graph, layer=layer, role=Role.BACKWARD), layer

    for weights in ("user_conv/kernel", "item_dense/bias", "embedding/embeddings"):
        layer = weights.partition("/")[0]
        names = [f"adam/{weights.replace('/', '_')}_{slot}" for slot in ("momentum", "velocity")]
        for name in (weights, *names):
            assert graph.op(name).layer == layer
            writes = [op for op in _of(graph, variable=name) if op.kind.startswith("Assign")]
            assert writes
            assert {(op.role, op.layer) for op in writes} == {(Role.UPDATE, layer)}
        read_forward = [op for op in _of(graph, variable=weights) if op.role is Role.FORWARD]
        assert layer in {op.layer for op in read_forward}

    # What counts the steps serves all layers.
    counted = {op.variable for op in _of(graph, role=Role.UPDATE, layer=None)}
    assert counted <= {None, "adam/iteration"}
    touching = _of(graph, variable="adam/iteration")
    assert {op.role for op in touching} == {Role.VARIABLE, Role.UPDATE}
    (write,) = [op for op in touching if op.kind.startswith("Assign")]
    (added,) = [
        e.producer for e in graph.inputs_of(write.name) if graph.op(e.producer).kind == "AddV2"
    ]
    assert graph.op(added).role is Role.UPDATE


def test_residual_additions_and_casts_of_a_model_tie_no_towers(trace_source):
    graph = trace_source(_RESIDUAL_TOWERS).graph
    own = {layer for layer in graph.layers() if layer.startswith("residual_model")}
    assert own == {"residual_model/Add", "residual_model/Add_1", "residual_model/Mul"}
    for layer in ("residual_model/Add", "residual_model/Add_1"):
        (addition,) = _of(graph, layer=layer, role=Role.FORWARD)
        fed_by = {graph.op(edge.producer).layer for edge in graph.inputs_of(addition.name)}
        assert fed_by in ({"left", "left_dense"}, {"right", "right_dense"})
    inputs = {"left_ids", "right_ids"}
    casts = [
        op
        for op in _of(graph, kind="Cast")
        if {e.producer for e in graph.inputs_of(op.name)} & inputs
    ]
    assert {op.layer for op in casts} == {"left", "right"}


def test_sizes_by_hand(traced):
    graph = traced("two_tower").graph
    # 4 pairs of 10 words, each w0 … w19 or "unseen": 2 to 6 letters.
    (user_bytes,) = graph.op("user").output_bytes
    assert 4 * 10 * 2 <= user_bytes <= 4 * 10 * 6
    gathers = _of(graph, kind="GatherV2", role=Role.FORWARD)
    assert [op.output_bytes for op in gathers] == [(4 * 10 * 8 * _FLOAT_BYTES,)] * 2
    assert graph.op("embedding/embeddings").parameter_bytes == 21 * 8 * _FLOAT_BYTES
    conv = _of(graph, kind="Conv2D", layer="user_conv")
    assert [op.output_bytes for op in conv] == [(4 * 8 * 4 * _FLOAT_BYTES,)]
    assert conv[0].flops == 2 * (4 * 8 * 4) * (3 * 8)
    # 4 sequences of 10 words, 8 channels to 4, 3 words at a time.
    assert conv[0].kernel == Kernel(KernelFamily.CONV, (4, 8, 4, 1, 3, 1, 10, 1, 8, 1))


def test_layers_with_numbers_are_not_mixed_up_and_have_their_averages_and_seeds(traced):
    graph = traced("norm_dropout").graph
    products = Counter((op.layer, op.role) for op in _of(graph, kind="MatMul"))
    assert products.total() == 8
    # The first layer needs no gradient of its input.
    for layer, gradients in {"dense": 1, "dense_1": 2, "dense_2": 2}.items():
        assert products[f"sequential/{layer}", Role.FORWARD] == 1
        assert products[f"sequential/{layer}", Role.BACKWARD] == gradients

    norm = "sequential/batch_normalization"
    for name, layer in {
        f"{norm}/moving_mean": norm,
        "seed_generator/seed_generator_state": "sequential/dropout",
    }.items():
        ops = _of(graph, variable=name)
        assert {op.layer for op in ops} == {layer}
        assert {op.role for op in ops if op.kind.startswith("Assign")} == {Role.FORWARD}


def test_layers_of_nested_models_have_paths_and_calls_have_numbers_that_gradients_follow(traced):
    graph = traced("nested").graph
    calls = {f"ranker/encoder/{layer}" for layer in ("dense", "dense@2", "dense_1", "dense_1@2")}
    assert set(graph.layers()) == calls | {"ranker/join", "ranker/score"}
    sizes = {layer: graph.op(f"ranker/encoder/{layer}/kernel") for layer in ("dense", "dense_1")}
    assert sizes["dense"].parameter_bytes == 5 * 6 * _FLOAT_BYTES
    assert sizes["dense_1"].parameter_bytes == 6 * 6 * _FLOAT_BYTES

    for layer in ("ranker/encoder/dense_1", "ranker/encoder/dense_1@2"):
        backward = _of(graph, layer=layer, role=Role.BACKWARD, kind="MatMul")
        assert len(backward) == 2
        # They read what their own call has computed, or its input.
        own = {op.name for op in _of(graph, role=Role.FORWARD) if op.layer is not None}
        read = {e.producer for op in backward for e in graph.inputs_of(op.name)} & own
        number = layer.partition("@")[1:]
        sides = {str(graph.op(name).layer).partition("@")[1:] for name in read}
        assert sides <= {number, ("", "")}
        assert number in sides


def test_name_scopes_are_layers_through_calls_of_functions(traced):
    graph = traced("scoped_step").graph
    for layer in ("tower_a/dense", "tower_b/dense"):
        counts = Counter((op.kind, op.role) for op in _of(graph, layer=layer))
        assert counts["MatMul", Role.FORWARD] == 1
        assert counts["TanhGrad", Role.BACKWARD] == 1
        assert counts["MatMul", Role.BACKWARD] == 1
        assert counts["AssignSubVariableOp", Role.UPDATE] == 1
    # A function of TensorFlow's that opens a scope of its own is part of the layer around it.
    assert {op.layer for op in _of(graph, kind="RandomUniform")} == {"head"}


def test_calls_are_inlined_and_every_op_is_needed(traced):
    for name in ("scoped_step", "norm_dropout", "nested"):
        kinds = {op.kind for op in traced(name).graph.ops}
        assert not kinds & {"PartitionedCall", "StatefulPartitionedCall", "IdentityN"}

    graph = traced("scoped_step").graph
    unread = [op for op in graph.ops if not graph.outputs_of(op.name) and op.role is not Role.INPUT]
    # What nothing reads is an output or changes state.
    changes = {"NoOp", "RandomUniform", "AssignVariableOp", "AssignSubVariableOp"}
    assert {op.kind for op in unread} <= {"Identity", "ReadVariableOp"} | changes


def test_a_loop_and_its_gradient_are_one_op_each_with_the_variables_that_it_takes(traced):
    graph = traced("looping_step").graph
    (loop,) = _of(graph, kind="While")
    assert (loop.role, loop.layer) == (Role.FORWARD, "while")
    gradients = _of(graph, kind="StatelessWhile") + _of(graph, kind="While", role=Role.BACKWARD)
    assert {(op.role, op.layer) for op in gradients} == {(Role.BACKWARD, "while")}
    assert _of(graph, kind="If")

    taken = {
        edge.producer
        for op in graph.ops
        if op.kind in ("While", "If")
        for edge in graph.inputs_of(op.name)
        if graph.op(edge.producer).role is Role.VARIABLE
    }
    # The loop changes count, the branch total and count; what they only read is not taken.
    assert len(taken) == 2
    assert len({graph.op(name).variable for name in taken}) == 1
    alone = {op.variable for op in _of(graph, kind="ResourceApplyAdam")}
    assert not alone & taken


def test_a_recurrent_layer_goes_forward_before_it_goes_back(traced):
    graph = traced("recurrent").graph
    (forward,) = _of(graph, kind="While", role=Role.FORWARD)
    assert str(forward.layer).startswith("sequential/memory")
    heads = _of(graph, kind="MatMul", layer="sequential/head", role=Role.FORWARD)
    assert len(heads) == 1


STEP = """
random = np.random.default_rng(0)
weight = tf.Variable(random.normal(size=(3, 3)).astype(np.float32), name="weight")
other = tf.Variable(random.normal(size=(3, 3)).astype(np.float32), name="other")
inputs = random.normal(size=(4, 3)).astype(np.float32)
rate = 0.1
"""
# What trains both variables by a loss.
TRAINING = """
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        {loss}
    for variable, gradient in zip((weight, other), tape.gradient(loss, [weight, other])):
        variable.assign_sub(rate * gradient)
    return loss
"""


def test_a_step_without_scopes_has_a_layer_for_each_use_of_a_variable(trace_source):
    tower = "@tf.function\ndef tower(x, kernel):\n    return x @ kernel\n"
    step = TRAINING.format(loss="loss = tf.reduce_mean(tower(x, weight) * tower(x, other))")
    graph = trace_source(STEP + tower + step).graph
    by_variable = {name: graph.op(name).layer for name in ("weight", "other")}
    assert sorted(map(str, by_variable.values())) == ["matmul", "matmul@2"]
    for name, layer in by_variable.items():
        gradients = _of(graph, layer=layer, kind="MatMul", role=Role.BACKWARD)
        assert len(gradients) == 1
        assert {op.layer for op in _of(graph, variable=name)} == {layer}


def test_a_batch_cut_into_slices_belongs_to_no_layer_and_ties_none(trace_source):
    loss = """halves = tf.split(tf.cast(x, tf.float32) / 255.0, 2)
        left, right = tf.sin(halves[0] @ weight), tf.sin(halves[1] @ other)
        loss = tf.reduce_mean(left * right)"""
    graph = trace_source(STEP + TRAINING.format(loss=loss)).graph
    (split,) = _of(graph, kind="Split")
    (scaled,) = _of(graph, kind="RealDiv", role=Role.FORWARD, layer=None)
    left, right = (op.layer for op in _of(graph, kind="MatMul", role=Role.FORWARD))
    assert split.layer is None
    view = layer_view(graph)
    assert {split.name, scaled.name} <= view.membership.free
    assert view.feeders()[left] == view.feeders()[right] == ()
    (join,) = towers(view, counting_layers(graph, view))
    assert [layers[0] for layers in join.towers] == [left, right]


def test_a_learning_rate_of_several_layers_belongs_to_none_of_them(trace_source):
    rate = 'rate = tf.Variable(0.1, name="rate")\n'
    step = TRAINING.format(loss="loss = tf.reduce_mean(tf.sin(x @ weight) @ other)")
    graph = trace_source(STEP + rate + step).graph
    assert graph.op("rate").layer is None
    layers = [graph.op(name).layer for name in ("weight", "other")]
    assert None not in layers
    scaled = _of(graph, kind="Mul", role=Role.UPDATE)
    assert sorted(op.layer for op in scaled) == sorted(layers)


def test_a_forward_pass_after_an_update_is_forward(trace_source):
    script = """
@tf.function
def step(x):
    for variable in (weight, other):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight @ other) ** 2)
        variable.assign_sub(0.1 * tape.gradient(loss, variable))
"""
    graph = trace_source(STEP + script).graph
    products = Counter(op.role for op in _of(graph, kind="MatMul"))
    assert products[Role.FORWARD] == 4
    assert products[Role.UPDATE] == 0


def test_a_sum_of_gradients_on_their_way_is_backward(trace_source):
    loss = """with tf.name_scope("bottom"):
            hidden = tf.tanh(x @ weight)
        with tf.name_scope("top"):
            loss = tf.reduce_mean((hidden + tf.tanh(hidden @ other)) ** 2)"""
    graph = trace_source(STEP + TRAINING.format(loss=loss)).graph
    sums = _of(graph, kind="AddN")
    assert [op.role for op in sums] == [Role.BACKWARD]
    assert sums[0].layer in ("bottom", "top")


def test_weight_decay_is_an_update_of_its_layer(trace_source):
    graph = trace_source("""
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="only")])
model.compile(keras.optimizers.SGD(0.1, weight_decay=0.01), "mse", jit_compile=True)
inputs = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
""").graph
    writes = [
        op for op in _of(graph, variable="sequential/only/kernel") if op.kind.startswith("Assign")
    ]
    assert len(writes) == 2
    assert {(op.role, op.layer) for op in writes} == {(Role.UPDATE, "sequential/only")}


def test_a_function_called_by_a_keras_layer_belongs_to_the_layer(trace_source):
    graph = trace_source("""
class Squeeze(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(3, 3), name="kernel")
    @tf.function
    def call(self, inputs):
        return tf.tanh(inputs @ self.kernel)
model = keras.Sequential([keras.Input((3,)), Squeeze(name="one"), Squeeze(name="two")])
model.compile("sgd", "mse")
inputs = np.ones((4, 3), np.float32), np.ones((4, 3), np.float32)
""").graph
    for layer in ("sequential/one", "sequential/two"):
        counts = Counter((op.kind, op.role) for op in _of(graph, layer=layer))
        assert counts["MatMul", Role.FORWARD] == counts["Tanh", Role.FORWARD] == 1
        assert counts["TanhGrad", Role.BACKWARD] == 1


# What a step returns, what is said of it, and, of an error on its line, of the way out.
CANNOT_BE_TRACED = {
    "a table that changes": (
        "(table.insert([1], x[0, :1]), table.lookup([1]))[1]",
        "cannot be moved to another device",
        "",
    ),
    "an iterator": ("tf.cast(next(numbers), tf.float32) + x", "used by IteratorGetNext", ""),
    "nothing to do": ("None", "returns nothing and changes nothing", ""),
    "a shape that does not fit": ("x @ tf.ones((7, 7))", "for '{{node matmul}} = MatMul", "shapes"),
    "a value while tracing": ("x.numpy()", "no attribute 'numpy'", "Use TensorFlow ops"),
    "NumPy on a tensor": ("np.sum(x)", "to a numpy array", "Use TensorFlow ops"),
    "counting by a value": ("[x for _ in range(tf.size(x))]", "symbolic", "tf.range"),
    "a variable made in it": ("tf.Variable(1.0) * x", "singleton tf.Variables", "outside the step"),
}
_REFUSED = """
table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, 0.0)
numbers = iter(tf.data.Dataset.range(100))
@tf.function
def step(x):
    return """


def test_summaries_are_left_out_and_said_to_be(trace_source):
    traced = trace_source("""
import tempfile
writer = tf.summary.create_file_writer(tempfile.mkdtemp())
inputs = (tf.ones((2, 3)),)
@tf.function
def step(x):
    with writer.as_default():
        tf.summary.scalar("sum", tf.reduce_sum(x), step=1)
    return tf.identity_n([x * 2.0])[0]
""").traced
    assert traced.left_out.told() == ("summaries",)
    assert {op.kind for op in traced.graph.ops} == {"Placeholder", "Const", "Mul", "Identity"}


@pytest.mark.parametrize("what", CANNOT_BE_TRACED)
def test_a_step_that_cannot_be_traced_is_refused_with_its_line_and_the_way_out(trace_source, what):
    returned, reason, hint = CANNOT_BE_TRACED[what]
    source = f"{STEP}{_REFUSED}{returned}\n"
    with pytest.raises(ModelError) as caught:
        trace_source(source)
    message = caught.value.message
    assert "model.py" in message
    assert reason in message
    assert "Traceback" not in message
    if hint:
        assert "model.py: step cannot be traced: " in message
        assert f'model.py", line {source.count(chr(10))}, in step' in message
        assert "placement_advisor" not in message
        assert hint in str(caught.value.hint)


@pytest.mark.parametrize(("write", "size"), [("scatter_sub", 2 * 50 * 4 * 4), ("assign_sub", 0)])
def test_reading_a_variable_that_is_written_row_by_row_copies_it(trace_source, write, size):
    change = "tf.IndexedSlices(x, ids)" if write == "scatter_sub" else "tf.zeros((50, 4))"
    graph = trace_source(f"""
table = tf.Variable(tf.ones((50, 4)))
inputs = (tf.ones((3, 4)), tf.constant([1, 4, 7]))
@tf.function
def step(x, ids):
    rows = tf.gather(table.read_value(), ids)
    table.{write}({change})
    return rows
""").graph
    (read,) = [op for op in graph.ops if op.kind == "ReadVariableOp"]
    assert read.bytes_accessed == size


@pytest.mark.parametrize(
    ("setting", "arithmetic"),
    [
        ("", Arithmetic.DEFAULT),
        ("tf.config.experimental.enable_tensor_float_32_execution(True)", Arithmetic.DEFAULT),
        ("tf.config.experimental.enable_tensor_float_32_execution(False)", Arithmetic.FLOAT32),
    ],
)
def test_products_may_be_in_tf32_unless_the_model_file_forbids_it(
    trace_source, setting, arithmetic
):
    source = """
@tf.function
def step(x):
    return tf.nn.relu(x @ weight)
"""
    graph = trace_source(STEP + setting + source).graph
    found = {op.kind: op.kernel.arithmetic for op in graph.ops if op.kernel is not None}
    assert found == {"MatMul": arithmetic, "Relu": Arithmetic.DEFAULT}


_SCOPES = """
weights = tf.Variable(tf.ones((4, 4)), name="weights")
@tf.function
def activate(x):
    return tf.nn.relu(x)
@tf.function
def step(x):
    with tf.device("/job:localhost/replica:0/task:0/device:GPU:1"):
        a = tf.exp(x @ weights, name="here")
    with tf.device("gpu"):
        b = tf.exp(a, name="first")
    with tf.device("/job:worker/task:2/cpu:0"):
        c = activate(b)
    return tf.exp(c, name="nowhere")
inputs = tf.ones((2, 4))
"""


def test_ops_keep_their_devices_in_one_short_form_and_the_line_that_made_them(trace_source):
    traced = trace_source(_SCOPES).traced
    asked = traced.requested_device_of
    assert {name: asked.get(name) for name in ("matmul", "here", "first", "nowhere")} == {
        "matmul": "GPU:1",
        "here": "GPU:1",
        "first": "GPU:0",
        "nowhere": None,
    }
    # A called function stands where it is called.
    assert {asked[name] for name in asked if name.endswith("Relu")} == {"/job:worker/task:2/CPU:0"}

    lines = _SCOPES.splitlines()
    for name, line in traced.line_of.items():
        assert Path(line.file).name == "model.py", name
    assert 'name="here"' in lines[traced.line_of["here"].line - 1]
    # What a function holds has the line that calls it.
    (relu,) = (op.name for op in traced.graph.ops if op.kind == "Relu")
    assert "activate(b)" in lines[traced.line_of[relu].line - 1]
    # Nobody's line makes a variable part of the step, but one created it.
    assert "weights" not in traced.line_of
    (created,) = traced.created_at["weights"]
    assert lines[created.line - 1].startswith("weights = tf.Variable")


_TOWERS = """
kernels = [tf.Variable(tf.ones((4, 4)), name=name) for name in ("left", "right")]
def tower(x, kernel):
    return tf.nn.relu(x @ kernel)
def towers(x):
    left = tower(x, kernels[0])
    right = tower(x, kernels[1])
    return left + right
@tf.function
def step(x):
    return towers(x)
inputs = tf.ones((2, 4))
"""


def test_an_op_knows_all_lines_that_led_to_it(trace_source):
    traced = trace_source(_TOWERS).traced
    lines = [line.strip() for line in _TOWERS.splitlines()]
    stacks = [
        [lines[line.line - 1] for line in traced.stack_of[op.name]]
        for op in traced.graph.ops
        if op.kind == "Relu"
    ]
    assert stacks == [
        ["return tf.nn.relu(x @ kernel)", f"{side} = tower(x, kernels[{i}])", "return towers(x)"]
        for i, side in enumerate(("left", "right"))
    ]


def test_layers_of_a_library_have_no_line_of_the_user(traced):
    found = traced("two_tower").traced
    assert found.line_of == {}
    # Keras itself asks for the CPU where it looks texts up.
    assert set(found.requested_device_of.values()) <= {"CPU:0"}


_READING = """
read, written = tf.Variable(tf.ones((3, 3)), name="read"), tf.Variable(0.0, name="written")
inputs = tf.ones((4, 3))

def product(x):
    return x @ read

@tf.function
def step(x):
    {body}
    return x
"""
ONLY_READ = {
    "a loop": (
        "x = tf.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: (product(x),), (x,))[0]"
    ),
    "a condition that reads": (
        "x = tf.while_loop(lambda x: tf.reduce_sum(x @ read) < 9.0, lambda x: (x + 1.0,), (x,))[0]"
    ),
    "a loop in a loop": (
        "for _ in tf.range(3):\n        for _ in tf.range(2):\n            x = product(x)"
    ),
    "a function in a loop": (
        "inner = tf.function(product)\n    for _ in tf.range(3):\n        x = inner(x)"
    ),
    "a conditional": "x = tf.cond(tf.reduce_sum(x) > 0.0, lambda: product(x), lambda: x + read[0])",
    "a choice": "x = tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: product(x), lambda: x])",
    "a gradient": (
        "with tf.GradientTape() as tape:\n"
        "        y = x\n"
        "        for _ in tf.range(3):\n"
        "            y = product(y)\n"
        "    x = tape.gradient(y, read)"
    ),
}
ALSO_WRITTEN = "for _ in tf.range(3):\n        written.assign_add(tf.reduce_sum(product(x)))"
HOLDERS = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")


def holders_in(graph):
    """Return the variable that each loop or conditional is bound to."""
    return [op.variable for op in graph.ops if op.kind in HOLDERS]


@pytest.mark.parametrize("body", ONLY_READ.values(), ids=ONLY_READ)
def test_what_only_reads_a_variable_is_bound_to_none(trace_source, body):
    graph = trace_source(_READING.format(body=body)).graph
    bound = holders_in(graph)
    assert bound
    assert set(bound) == {None}
    # The read stands with the variable, and crosses as any tensor does.
    assert {op.variable for op in graph.ops if op.kind == "ReadVariableOp"} == {"read"}


def test_what_looks_up_rows_or_writes_a_variable_stays_with_it_but_is_handed_what_it_reads(
    trace_source,
):
    body = "for i in tf.range(3):\n        x += tf.gather(read, i)"
    assert holders_in(trace_source(_READING.format(body=body)).graph) == ["read"]

    graph = trace_source(_READING.format(body=ALSO_WRITTEN)).graph
    assert holders_in(graph) == ["written"]
    (loop,) = (op for op in graph.ops if op.kind in HOLDERS)
    producers = {graph.op(edge.producer).kind for edge in graph.inputs_of(loop.name)}
    assert "ReadVariableOp" in producers


_KERAS = """
calls = []
class Own(keras.Model):
    def {method}(self, *args, **more):
        logs = super().{method}(*args, **more)
        {tell}
        return logs
side = keras.Input((4,))
model = {kind}(side, keras.layers.Dense(1)(side))
{rest}
inputs = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
"""
_FUNCTION = """
{rest}
weight = tf.Variable(tf.ones((4, 4)))
@tf.function({options})
def product(x):
    return tf.sin(x @ weight)
@tf.function
def step(x):
    return product(x) * 2.0
inputs = (tf.ones((8, 4)),)
"""


def _keras(rest, *, kind="Own", method="make_train_function", tell=""):
    return _KERAS.format(rest=rest, kind=kind, method=method, tell=tell)


def _compiled(options="", *, kind="keras.Model", **more):
    return _keras(f'model.compile("sgd", "mse"{options})', kind=kind, **more)


def _function(options="", rest=""):
    return _FUNCTION.format(options=options, rest=rest)


_OPTIONS = 'set_experimental_options({"remapping": False, "auto_mixed_precision": True})'
_SET = {
    "optimizer.set_jit(True)": ("tf.config.optimizer.set_jit",),
    "threading.set_intra_op_parallelism_threads(2)": ("tf.config.threading",),
    f"optimizer.{_OPTIONS}": ("remapping", "auto_mixed_precision"),
}


@pytest.mark.parametrize(
    ("source", "left_out"),
    [
        (_compiled(), LeftOut()),
        (_compiled(", jit_compile=True"), LeftOut(jit_compile=True)),
        (_compiled(", run_eagerly=True"), LeftOut(run_eagerly=True)),
        (_compiled(", steps_per_execution=4"), LeftOut(steps_per_call=4)),
        (_compiled(kind="Own"), LeftOut(method="make_train_function")),
        (_keras("", method="predict_step"), LeftOut(method="predict_step")),
        (_function(), LeftOut()),
        (_function("jit_compile=False"), LeftOut()),
        (_function("jit_compile=True"), LeftOut(jit_compile=True)),
        (_function(rest="tf.config.run_functions_eagerly(True)"), LeftOut(run_eagerly=True)),
        *((_function(rest=f"tf.config.{each}"), LeftOut(settings=_SET[each])) for each in _SET),
    ],
)
def test_what_is_left_out_is_known(trace_source, source, left_out):
    found = trace_source(source).traced.left_out
    assert found == left_out
    assert len(found.told()) == (left_out != LeftOut())


# XLA has no kernels for texts; only what is no graph calls Python in each step.
_TELLS = {
    ", jit_compile=True": 'logs["digits"] = tf.strings.length(tf.strings.as_string(logs["loss"]))',
    ", run_eagerly=True": "calls.append(1 // (len(calls) < 20))",
}


@pytest.mark.parametrize("has_option", [False, True])
@pytest.mark.parametrize("option", _TELLS)
def test_the_users_own_step_runs_as_their_model_is_compiled(child, load_script, option, has_option):
    more = {"kind": "Own", "method": "train_step", "tell": _TELLS[option]}
    load_script(IMPORTS + _compiled(option * has_option, **more))
    answer = child.call(native_step.run_as_is, 0, 30)
    assert isinstance(answer, CallFailure) == has_option
