"""Rules on what the tracer says of a step: scopes, lines, kernels, dtypes and how it grows.

Those that judge times or memory alone are tried on steps by hand, in `tests/analysis/findings`.
"""

from dataclasses import replace
from functools import cache

import pytest
from finding_evidence import evidence_of, told
from traced_models import IMPORTS, trace

from placement_advisor.analysis.findings import scope_rules
from placement_advisor.analysis.findings.evidence import YOUR_SPLIT, SplitFinding
from placement_advisor.analysis.findings.rules import RULES
from placement_advisor.candidates.families import placements_of, propose
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostSource
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.step_growth import TIMES, GrowingStep, StepGrowth
from placement_advisor.tf.answers import MIXED_PRECISION, LeftOut

_HEAD = """
random = np.random.default_rng(0)
def weights(*shape, on=None, dtype="float32"):
    with tf.device(on):
        return tf.Variable(random.normal(size=shape).astype(dtype) / shape[0])
"""
# Branches beside one another, or layers one after the other, each in a device scope of its own.
_BRANCHES = """
DEVICES, WIDTH, BATCH, IN_CHAIN, FOLLOWS = {devices}, {width}, {batch}, {in_chain}, {follows}
kernels = [weights(WIDTH, WIDTH, on=device) for device in DEVICES]
@tf.function
def train_step(x):
    hidden, parts = x, []
    with tf.GradientTape() as tape:
        for i, device in enumerate(DEVICES):
            with tf.device(device), tf.name_scope(f"part_{{i}}"):
                made = tf.tanh((hidden if IN_CHAIN else x) @ kernels[i])
                parts.append(tf.reduce_sum(made, name="total"))
            hidden = made
        loss = parts[-1] if IN_CHAIN else tf.add_n(parts)
    gradients = tf.gradients(loss, kernels) if FOLLOWS else tape.gradient(loss, kernels)
    for kernel, gradient in zip(kernels, gradients):
        kernel.assign_sub(0.1 * gradient)
    return loss
inputs = random.normal(size=(BATCH, WIDTH)).astype("float32")
"""
_TEXTS = """
@tf.function
def classify(texts):
    with tf.device("GPU:0"):
        lengths = tf.strings.length(tf.strings.lower(texts))
        return tf.cast(lengths, tf.float32) * 2.0
inputs = np.array(["Some", "WORDS"])
"""

# A functional model of two towers, the second of which is meant for another device.
_TWO_TOWERS = """
class OnDevice(keras.layers.Layer):
    def __init__(self, part, device):
        super().__init__()
        self.part, self.device = part, device
    def call(self, inputs):
        with tf.device(self.device):
            return self.part(inputs)
left, right = keras.Input((64,)), keras.Input((64,))
low = keras.layers.Dense(8, name="low")(left)
item = keras.Sequential([keras.layers.Dense(8, name="high")], name="tower")
{high}
model = keras.Model([left, right], keras.layers.Dense(1)(keras.layers.concatenate([low, high])))
model.compile("sgd", "mse")
inputs = (np.ones((16, 64), "float32"), np.ones((16, 64), "float32")), np.ones((16, 1), "float32")
"""


def branches(devices, **options):
    """Return a training step with a part for each digit: the number of its GPU."""
    options = {"width": 64, "batch": 32, "in_chain": False, "follows": True} | options
    return _BRANCHES.format(devices=[f"GPU:{number}" for number in devices], **options)


# Every sample of the batch is a negative of every other one.
_RETRIEVAL = """
items = tf.Variable(tf.ones((20_000, 32)), name="items")
weights = tf.Variable(tf.ones((32, 32)), name="weights")
@tf.function
def step(x, chosen):
    with tf.GradientTape() as tape:
        queries = tf.matmul(x, weights)
        scores = tf.matmul(queries, tf.gather(items, chosen), transpose_b=True, name="scores")
        loss = tf.reduce_mean(tf.nn.log_softmax(scores))
    gradients = tape.gradient(loss, [weights])
    weights.assign_sub(0.1 * gradients[0])
    items.assign_sub(1e-3 * items)
    return loss
inputs = tf.ones(({batch}, 32)), tf.zeros(({batch},), tf.int32)
"""


def with_growth(evidence, at, batch):
    """Return the evidence of a source at a batch, with how it grows."""
    found = evidence(at(batch))
    larger = {times: evidence(at(batch * times)).graph for times in TIMES}
    growth = StepGrowth(found.graph, batch, larger)
    return replace(found, growing=GrowingStep(growth, found.prices.costs, found.cluster))


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """Return a function that traces a source below `_HEAD` and gathers evidence on a cluster."""

    @cache
    def traced(source):
        folder = tmp_path_factory.mktemp("step")
        path = folder / "model_file.py"
        path.write_text(IMPORTS + _HEAD + source)
        return trace(path, folder, run=False)

    def gathered(text, cluster=None, left_out=None, **more):
        step = traced(text).traced
        cluster = cluster or assumed_cluster(2)
        costs = roofline_by_place(step.graph, cluster)
        proposed = placements_of(propose(("single", "towers"), step.graph, costs, cluster))
        found = evidence_of(step.graph, costs, *proposed.values(), cluster=cluster, **more)
        told = replace(step, left_out=left_out or LeftOut(), takes_batch_size=True)
        return replace(found, traced=told)

    return gathered


def found(code, evidence):
    """Return what one rule finds in the user's own split, or in what is no split."""
    rule = next(rule for rule in RULES if code == rule.code)

    def find(evidence):
        return [
            each
            for each in rule.found(evidence)
            if not isinstance(each, SplitFinding) or each.split.name == YOUR_SPLIT
        ]

    return list(told(find, evidence))


def test_pa101_says_where_and_what_it_costs_and_is_silent_where_gradients_follow(evidence):
    source = branches("0011", width=512, follows=False)
    (finding,) = found("PA101", evidence(source))
    assert str(finding.where["file"]).endswith("model_file.py")
    assert "@ kernels[i]" in (_HEAD + source).splitlines()[finding.where["line"] - 1]
    assert finding.saving is not None
    assert found("PA101", evidence(branches("011", in_chain=True))) == []


def test_pa302_of_negatives_in_the_batch_names_the_op_by_which_a_larger_one_is_slower(evidence):
    def at(batch):
        return _RETRIEVAL.format(batch=batch)

    (finding,) = found("PA302", with_growth(evidence, at, 16))
    assert "the rate falls again: for 'scores' each is more work" in finding.finding
    advised = finding.batch_size
    # At the batch that is advised, as traced there, it is not found again.
    assert found("PA302", with_growth(evidence, at, advised)) == []
    # What is told of it is what is traced there.
    growing = with_growth(evidence, at, 16).growing
    assert growing.growth.at(advised) == evidence(at(advised)).graph


def absent(hardware):
    return {"cluster": read_hardware(hardware), "source": CostSource.ASSUMED}


def test_pa305_large_products_in_float32_are_slow_where_units_do_halves(evidence):
    large = branches("00", width=2048, batch=4096)
    (finding,) = found("PA305", evidence(large, **absent("2xV100")))
    assert "float16" in finding.action
    # A small step waits for launches, of which casts are more.
    assert found("PA305", evidence(branches("00"), **absent("2xV100"))) == []
    # Where times were recorded, another step cannot be priced.
    assert found("PA305", evidence(large, read_hardware("2xV100"))) == []
    # What is in halves already.
    halves = large.replace("float32", "float16").replace("=device", "=device, dtype='float16'")
    assert found("PA305", evidence(halves, **absent("2xV100"))) == []
    # What TensorFlow itself puts into halves, and what is kept in float32 beside halves.
    auto = LeftOut(settings=(MIXED_PRECISION,))
    assert found("PA305", evidence(large, **absent("2xV100"), left_out=auto)) == []
    half = "tf.cast(tf.cast(x, tf.float16) @ tf.cast(kernels[i], tf.float16), tf.float32)"
    in_part = large.replace("tf.tanh(", f"{half} + tf.tanh(")
    assert found("PA305", evidence(in_part, **absent("2xV100"))) == []


_CHAIN = """
w = weights(512, 512)
@tf.function
def score(x):
    x = x @ w
    {chain}
    return x @ w
inputs = random.normal(size=(256, 512)).astype("float32")
"""


def test_pa306_a_chain_of_elementwise_ops_could_be_one(evidence):
    chain = _CHAIN.format(chain="x = tf.sqrt(tf.exp(tf.tanh(x) * 2.0) + 1.0)")
    (finding,) = found("PA306", evidence(chain, **absent("2xV100")))
    # Tanh, Mul, Exp and AddV2 are one with Sqrt.
    assert finding.finding.startswith("4 elementwise ops")
    assert finding.saving is not None
    assert found("PA306", evidence(_CHAIN.format(chain=""), **absent("2xV100"))) == []
    (there,) = found(
        "PA306", evidence(chain, **absent("2xV100"), left_out=LeftOut(jit_compile=True))
    )
    assert there.finding.startswith("your program has XLA make 4 elementwise ops one with")
    assert "jit_compile" not in there.action
    assert "compare splits with one compiled device" in there.action
    assert there.saving is None
    assert found("PA306", evidence(chain, read_hardware("2xV100"))) == []
    (texts,) = found("PA306", evidence(_TEXTS, **absent("2xV100")))
    assert "(not with StringLength, StringLower in it, which no GPU computes)" in texts.action


def test_a_scope_that_keras_forgets_is_told_and_what_is_advised_takes_effect(evidence):
    lines = 'with tf.device("/gpu:1"):\n    high = keras.layers.Dense(8, name="high")(right)'
    in_vain = evidence(_TWO_TOWERS.format(high=lines))
    (finding,) = told(scope_rules.find_scope_without_effect, in_vain)
    assert finding.finding == (
        "your tf.device scope puts high on GPU:1, but a Keras functional model forgets it: "
        "their ops have no device and run on GPU:0"
    )
    line = 1 + (_HEAD + _TWO_TOWERS.partition("{high}")[0]).count("\n")
    assert finding.where["line"] == line
    assert str(finding.where["file"]).endswith("model_file.py")
    assert "MatMul" not in _kinds_on(in_vain, "GPU:1")

    # That of the default device takes effect, as does what is advised.
    default = evidence(_TWO_TOWERS.format(high=lines.replace("gpu:1", "gpu:0")))
    assert told(scope_rules.find_scope_without_effect, default) == ()
    followed = evidence(_TWO_TOWERS.format(high='high = OnDevice(item, "/gpu:1")(right)'))
    assert told(scope_rules.find_scope_without_effect, followed) == ()
    assert "MatMul" in _kinds_on(followed, "GPU:1")


def test_a_model_that_two_scopes_call_in_vain_is_told_by_its_layers(evidence):
    script = """
given = keras.Input((4,))
inner = keras.Model(given, keras.layers.Dense(3, name="inner_dense")(given))
rows = keras.Input((4,))
with tf.device("/gpu:0"):
    left = inner(rows)
with tf.device("/gpu:1"):
    right = inner(rows)
model = keras.Model(rows, keras.layers.Add()([left, right]))
model.compile("sgd", "mse")
inputs = (np.ones((8, 4), "float32"), np.ones((8, 3), "float32"))
"""
    (finding,) = told(scope_rules.find_scope_without_effect, evidence(script))
    assert finding.finding.startswith("your tf.device scope puts inner_dense on GPU:1, but a Keras")
    line = (_HEAD + script).splitlines()[finding.where["line"] - 1]
    assert line == 'with tf.device("/gpu:1"):'


def _kinds_on(evidence, device):
    """Return the kinds of the ops that ask for a device."""
    asked = evidence.traced.requested_device_of
    return {op.kind for op in evidence.graph.ops if asked.get(op.name) == device}
