"""Training steps of well-known networks go through, with all that an advisor must know of them.

BERT is built from its configuration in plain Keras layers, as keras_hub builds it (why, says
models/bert_classifier.py): its parameters and multiply-adds are those of keras_hub's own.
"""

import json
from functools import cache

import pytest
from command_runs import few_rounds
from real_models import MODELS, load_and_trace, saved
from real_runs import needs_workers

from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph

_BATCH = 4
_FLOAT_BYTES = 4
_slow = pytest.mark.slow
_IMAGE_NETWORKS = ["resnet50", "efficientnet_b0", "mobilenet_v2", "densenet121"]
_LARGE = [*_IMAGE_NETWORKS, "bert_base"]
_ALL = ["bert_small", *(pytest.param(name, marks=_slow) for name in _LARGE)]
_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
_PRODUCTS = (
    *(f"{kind}{of}" for kind in _CONVOLUTIONS for of in ("", "BackpropFilter", "BackpropInput")),
    *("MatMul", "BatchMatMulV2", "Einsum"),
)
# Parameters as https://keras.io/api/applications and the paper on BERT (110 M) give them, exactly.
_PARAMETERS = {
    "resnet50": 25_636_712,
    "efficientnet_b0": 5_330_571,
    "mobilenet_v2": 3_538_984,
    "densenet121": 8_062_504,
    # Embeddings, 12 layers, pooled output: 109,482,240; and the classifier's two classes.
    "bert_base": 109_482_240 + 2 * 768 + 2,
}
# Billions of multiply-adds for one image of 224² pixels: ResNet (He 2016, table 1), EfficientNet
# (Tan 2019, table 2), MobileNetV2 (Sandler 2018, table 4). DenseNet's paper only draws a curve.
_PUBLISHED_MACS = {"resnet50": 3.8e9, "efficientnet_b0": 0.39e9, "mobilenet_v2": 0.300e9}


@pytest.fixture(scope="module")
def real_model(fork_server, tmp_path_factory):
    """Return a function that loads and traces one of the models here, once."""

    @cache
    def loaded_and_traced(name):
        return load_and_trace(MODELS / f"{name}.py", tmp_path_factory.mktemp(name), facts=True)

    return loaded_and_traced


def _product_flops(graph, role):
    ops = [op for op in graph.ops if op.kind in _PRODUCTS and op.role is role]
    assert not {op.kind for op in ops if op.flops is None}
    return sum(op.flops or 0 for op in ops)


@pytest.mark.parametrize("name", _ALL)
def test_every_variable_counts_with_its_size_in_keras(real_model, name):
    model = real_model(name)
    facts = model.facts
    found = {op.name: op.parameter_bytes for op in model.graph.ops if op.role is Role.VARIABLE}
    # What EfficientNet's Normalization was told is part of its graph as constants.
    unread = {f"normalization/{part}" for part in ("mean", "variance", "count")}
    assert found == {k: size for k, size in facts["state"].items() if k not in unread}
    assert model.graph.parameter_bytes == sum(found.values())

    for path, count in facts["weights"].items():
        assert path in unread or found[path] == count * _FLOAT_BYTES
    weights = sum(facts["weights"].values())
    assert weights == facts["count_params"] == _PARAMETERS.get(name, weights)
    # Adam keeps two numbers for each that it trains, a learning rate, and an int64 count of steps.
    two_slots = 2 * facts["trainable"] * _FLOAT_BYTES
    assert sum(facts["slots"].values()) == two_slots + _FLOAT_BYTES + 8
    assert facts["slots"].keys() <= found.keys()


@pytest.mark.parametrize("name", _ALL)
def test_sizes_layers_and_devices_are_known_and_a_graph_is_loaded_back(real_model, name, tmp_path):
    graph = real_model(name).graph
    graph.save(tmp_path / "graph.json.gz")
    loaded = OpGraph.load(tmp_path / "graph.json.gz")
    assert (loaded, loaded.fingerprint) == (graph, graph.fingerprint)
    assert graph.edge_bytes_known_share >= 0.99
    placed = graph.placed_ops
    assert sum(op.layer is not None for op in placed) / len(placed) >= 0.98
    assert [op.name for op in graph.ops if not op.device_kinds] == []
    # Networks of nothing but numbers: a GPU has a kernel for every op.
    assert {op.kind for op in graph.ops if "GPU" not in op.device_kinds} == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", _IMAGE_NETWORKS)
def test_image_networks_have_the_flops_that_their_layers_add_up_to(real_model, name):
    model = real_model(name)
    macs, first_macs = model.facts["macs"], model.facts["first_macs"]
    published = _PUBLISHED_MACS.get(name)
    assert published is None or macs / _BATCH == pytest.approx(published, rel=0.02)
    assert _product_flops(model.graph, Role.FORWARD) == 2 * macs
    # Each layer has a gradient for its weights and, but for the first, one for its input.
    assert _product_flops(model.graph, Role.BACKWARD) == 2 * (2 * macs - first_macs)


@pytest.mark.parametrize(
    ("name", "layers", "width", "tokens"),
    [("bert_small", 2, 32, 16), pytest.param("bert_base", 12, 768, 128, marks=_slow)],
)
def test_bert_has_the_flops_of_its_configuration(real_model, name, layers, width, tokens):
    graph = real_model(name).graph
    # Query, key, value and output: 4 squares of weights; two to four widths and back: 8 more.
    # Each token meets each token twice: for its weight, and for its value.
    per_layer = 12 * width**2 * tokens + 2 * tokens**2 * width
    top = width**2 + 2 * width
    macs = _BATCH * (layers * per_layer + top)
    assert _product_flops(graph, Role.FORWARD) == 2 * macs
    assert _product_flops(graph, Role.BACKWARD) == 2 * 2 * macs


@pytest.mark.slow
@needs_workers
def test_mobilenet_really_runs_and_computes_the_same_when_split(advisor, tmp_path):
    quick = ("--testbed", "workers", "--rounds", "3", "--steps", "1")
    quick = ("--candidates", "alternating", "--quiet", "--json", *quick)
    path, output = str(MODELS / "mobilenet_v2_96.py"), str(tmp_path / "out")
    with few_rounds(3):
        ran = advisor("analyze", path, *quick, "-o", output)
    assert ran.code == 0, ran.err
    candidates = json.loads(ran.out)["candidates"]
    assert [c["name"] for c in candidates] == ["single", "alternating"]
    assert [c["failure"] for c in candidates] == [None, None]
    for candidate in candidates:
        measured = candidate["measured"]
        assert len(measured["step_ns"]["samples"]) >= 3
        assert measured["moved_ops"] == []
    alternating = candidates[1]["measured"]
    assert alternating["verification"]["unverified"] == []
    assert alternating["transfer_count"] == candidates[1]["predicted"]["transfer_count"]


@pytest.mark.parametrize(
    ("name", "form", "mode"),
    [
        ("bert_small", "saved_model", "infer"),
        pytest.param("mobilenet_v2_96", "saved_model", "infer", marks=_slow),
        pytest.param("mobilenet_v2_96", "keras", "train", marks=_slow),
    ],
)
def test_a_model_that_keras_saved_is_the_same_model(real_model, name, form, mode, tmp_path):
    original = real_model(name)
    found = load_and_trace(saved(name, tmp_path, form), tmp_path, batch_size=_BATCH)
    assert (found.traced.mode, found.traced.batch_size) == (mode, _BATCH)
    for role in (Role.FORWARD, Role.BACKWARD) if mode == "train" else (Role.FORWARD,):
        assert _product_flops(found.graph, role) == _product_flops(original.graph, role)
    if mode == "infer":  # Without slots, metrics and seeds, the parameters alone are left.
        assert found.graph.parameter_bytes == original.facts["count_params"] * _FLOAT_BYTES
    else:
        assert found.graph.parameter_bytes == original.graph.parameter_bytes
    assert found.graph.edge_bytes_known_share >= 0.99
