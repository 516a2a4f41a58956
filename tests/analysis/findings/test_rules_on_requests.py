import pytest
from finding_evidence import evidence_of, graph_of, measured_as, on, op, told

from placement_advisor.analysis.findings import scope_rules
from placement_advisor.analysis.findings.evidence import YOUR_SPLIT
from placement_advisor.graph.op import Role

find_astray = scope_rules.find_backward_on_default_device
find_moved = scope_rules.find_moved_by_tensorflow


def _astray(graph, costs, *splits, **more):
    """Return what is told of a backward pass that does not follow its forward ops."""
    return told(find_astray, evidence_of(graph, costs, *splits, **more))


# first and second are layers; their gradients serve them, in the opposite order.
CHAIN = graph_of(
    [
        op("first", 100),
        op("second", 40),
        op("second/grad", 100, Role.BACKWARD, layer="second"),
        op("first/grad", 8, Role.BACKWARD, layer="first"),
    ],
    ("first", "second"),
    ("first", "second/grad"),
    ("second", "second/grad"),
    ("second/grad", "first/grad"),
)
COST_NS = {"first": 50, "second": 60, "second/grad": 120, "first/grad": 100}
HALVES = {"first": "GPU:0", "second": "GPU:1"}


def test_a_backward_pass_by_hand_and_more_devices_than_there_are():
    evidence = evidence_of(
        CHAIN, COST_NS, requested_device_of=HALVES, stack_of={"second": [("model.py", 7)]}
    )
    (finding,) = told(find_astray, evidence)
    assert (
        "forward ops on GPU:1, but 1 ops of their backward pass have no device" in finding.finding
    )
    assert finding.where == {
        "layer": "second", "op": "second", "device": "GPU:1", "file": "model.py", "line": 7,
    }  # fmt: skip
    # As written: first 50, to b 110, second 60, its output back 50, both gradients 220.
    assert evidence.splits[0].name == YOUR_SPLIT
    assert evidence.splits[0].schedule.step_ns == 50 + 110 + 60 + 50 + 120 + 100
    # With gradients beside 550: second's at once 120, its result back 110, first's 100. No gain.
    assert finding.action == (
        "give your own split up: it takes 490 ns for a step, one device 330 ns (simulated); if you "
        "keep it, leave the backward pass where it is: moving it to its forward ops is not "
        "sure to make the step shorter (simulated)"
    )
    assert finding.saving.saving_ns == 490 - 330
    asked = {"first": "GPU:1", "second": "GPU:2"}
    evidence = evidence_of(CHAIN, COST_NS, requested_device_of=asked)
    assert evidence.splits == ()
    (finding,) = told(find_astray, evidence)
    assert finding.saving is None
    assert evidence_of(CHAIN, COST_NS).splits == ()


def _kept_activation(*gradients):
    """The output of second is large here, and what its gradients leave is small."""
    graph = graph_of(
        [op("first", 100), op("second", 400), op("beside")]
        + [op(name, 8, Role.BACKWARD, layer="second") for name in gradients],
        ("first", "second"),
        *(("second", name) for name in gradients),
    )
    return graph, COST_NS | {"beside": 280} | dict.fromkeys(gradients[1:], 0)


def test_a_backward_pass_that_keeps_what_it_needs_is_what_the_cure_saves():
    asked = HALVES | {"beside": "GPU:0"}
    (finding,) = _astray(*_kept_activation("second/grad"), requested_device_of=asked)
    # Nothing comes after the gradient, so the copy back, 410 ns, is all that goes.
    assert finding.saving.saving_ns == 410
    assert finding.action.startswith("in your own split, compute gradients with tf.gradients(")


def test_gradients_in_a_scope_have_its_line_unless_a_library_asked():
    (finding,) = _astray(
        *_kept_activation("second/grad", "second/grad_1"),
        requested_device_of=HALVES | {"beside": "GPU:0", "second/grad": "GPU:0"},
        scope_of={"second/grad": ("model.py", 9), "second": ("model.py", 5)},
        stack_of={"second/grad": [("model.py", 10)]},
    )
    assert finding.finding == (
        "your tf.device scopes put forward ops on GPU:1, but 1 ops of their backward pass have no "
        "device and run on GPU:0; 1 ops of their backward pass ask for GPU:0, by your tf.device "
        "scope around the gradients (model.py:9): every activation is sent back"
    )
    assert finding.where == {
        "layer": "second", "op": "second/grad", "device": "GPU:0", "file": "model.py", "line": 9,
    }  # fmt: skip
    # Outside of that scope, and beside their forward op, as in the test above.
    assert finding.saving.saving_ns == 410
    asked = HALVES | {"second/grad": "CPU:0"}
    (finding,) = _astray(CHAIN, COST_NS, requested_device_of=asked)
    assert "1 ops of their backward pass ask for CPU:0: every" in finding.finding
    assert "your tf.device scope around" not in finding.finding


@pytest.mark.parametrize(
    ("graph", "asked"),
    [
        (CHAIN, {}),
        (CHAIN, {"first": "GPU:0", "second": "GPU:0"}),
        (CHAIN, HALVES | {"second/grad": "GPU:1", "first/grad": "GPU:0"}),
        # What stays on the host is not a split over devices.
        (CHAIN, {"first": "CPU:0", "second": "GPU:0"}),
        # Inference has no backward pass to leave behind.
        (graph_of([op("first", 100), op("second", 40)], ("first", "second")), HALVES),
    ],
)
def test_no_backward_pass_is_found_astray(graph, asked):
    assert _astray(graph, COST_NS, requested_device_of=asked) == ()


def test_a_split_by_hand_is_compared_with_one_whose_gradients_follow():
    by_hand = on(CHAIN, "towers-forward-only", {"second": "b"}, "towers-forward-only")
    following = on(CHAIN, "towers", {"second": "b", "second/grad": "b"}, "towers")
    evidence = evidence_of(CHAIN, COST_NS, following, by_hand)
    # 50 + 110 + 60 + 120 + 110 + 100 against 50 + 110 + 60 + 50 + 120 + 100.
    step_ns = {each.name: each.predicted.step_ns for each in evidence.candidates}
    assert (step_ns["towers"], step_ns["towers-forward-only"]) == (550, 490)
    assert told(find_astray, evidence) == ()
    swapped = (
        on(CHAIN, "towers", {"second": "b"}, "towers"),
        on(CHAIN, "by hand", {"second": "b", "second/grad": "b"}, "towers-forward-only"),
    )
    # 60 of 550, with copies at two thirds 40 of 477: ops may take as much more.
    assert _astray(CHAIN, COST_NS, *swapped) == ()
    (finding,) = _astray(CHAIN, COST_NS | {"second/grad": 20}, *swapped)
    assert (finding.where, finding.saving.saving_ns) == ({"candidate": "by hand"}, 60)


def _text_step(**asked):
    on_host = frozenset({"CPU"})
    graph = graph_of(
        [
            op("texts", 640, Role.INPUT),
            op("lower", 640, kind="StringLower", device_kinds=on_host),
            op("hash", 80, kind="StringToHash", device_kinds=on_host),
            op("dense", 8),
        ],
        ("texts", "lower"), ("lower", "hash"), ("hash", "dense"),
    )  # fmt: skip
    costs = dict.fromkeys(("lower", "hash", "dense"), 5)
    evidence = evidence_of(graph, costs, requested_device_of=asked)
    return told(scope_rules.find_no_gpu_kernel, evidence)


def test_each_kind_without_a_kernel_is_found_where_it_is_pinned_to_a_gpu():
    lower, hashed = _text_step(**dict.fromkeys(("texts", "lower", "hash", "dense"), "GPU:0"))
    assert lower.finding.startswith(
        "GPU:0 has no kernel for StringLower (1 op in your tf.device scope)"
    )
    # Only what hash hands to dense leaves the ops that run on the host.
    assert "At least 80 B per step" in hashed.finding
    assert hashed.where == {"layer": "hash", "op": "hash", "device": "GPU:0"}
    assert hashed.saving is None
    # They may stand on the host or nowhere.
    assert _text_step(lower="CPU:0", hash="CPU:0", dense="GPU:0") == _text_step() == ()


def test_ops_that_moved_in_a_run_are_named():
    moved = tuple(f"op{i}: task 0 CPU:0 → task 1 CPU:0" for i in range(5))
    halves = on(CHAIN, "halves", {"second": "b"})
    run = {"single": measured_as(100), "halves": measured_as(90, moved_ops=moved)}
    (finding,) = told(find_moved, evidence_of(CHAIN, COST_NS, halves, measured=run))
    assert "halves: TensorFlow moved 5 ops" in finding.finding
    assert finding.finding.endswith("op2: task 0 CPU:0 → task 1 CPU:0 and 2 more)")
    assert finding.where == {"op": "op0", "candidate": "halves"}
    assert told(find_moved, evidence_of(CHAIN, COST_NS, halves)) == ()


def _bias_step(**asked):
    graph = graph_of(
        [
            op("w", role=Role.VARIABLE, kind="VarHandleOp", variable="w"),
            op("gather", 80, kind="ResourceGather", variable="w"),
            op("product", 80),
            op("bias", 80, kind="BiasAdd"),
            op("write", role=Role.UPDATE, kind="AssignVariableOp", variable="w"),
        ],
        ("w", "gather"), ("w", "write"), ("gather", "product"), ("product", "bias"),
    )  # fmt: skip
    costs = dict.fromkeys(("gather", "product", "bias", "write"), 5)
    evidence = evidence_of(graph, costs, requested_device_of=asked)
    return told(find_moved, evidence)


def test_ops_of_one_variable_and_a_product_and_its_bias_will_be_brought_together():
    (finding,) = _bias_step(gather="GPU:1", write="GPU:0")
    assert "variable w ask for GPU:0 and GPU:1" in finding.finding
    (finding,) = _bias_step(product="GPU:0", bias="GPU:1")
    assert "product on GPU:0, bias on GPU:1" in finding.finding
    assert finding.where["device"] == "GPU:1"


@pytest.mark.parametrize(
    "asked",
    [
        {"gather": "GPU:1", "write": "GPU:1"},
        {"product": "GPU:0", "bias": "GPU:0"},
        # What asks for no device runs on the default one, which may be the same.
        {"bias": "GPU:1"},
    ],
)
def test_what_asks_for_one_device_stays_there(asked):
    assert _bias_step(**asked) == ()
