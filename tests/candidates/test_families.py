from dataclasses import replace

import pytest
from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import graph_of
from placed_steps import price
from step_graphs import calls_of, cluster_of, deepconn, models, proposed, training_step

from placement_advisor.candidates import families, references
from placement_advisor.candidates.by_layer import NotApplicable, alike, busy_ns
from placement_advisor.cost.table import CostTable
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Device

HOST = Device(name="CPU:0", kind="CPU")
FAST = Device(name="GPU:0", kind="GPU", host="CPU:0", launch_overhead_ns=5)
SLOW = replace(FAST, name="GPU:1", launch_overhead_ns=9, memory_bytes=600)
CLUSTERS = [
    cluster_of("d0"),
    cluster_of("d0", "d1"),
    cluster_of("d0", "d1", "d2", "d3"),
    cluster_of(FAST, hosts=[HOST]),
    cluster_of(FAST, SLOW, hosts=[HOST]),
]


def proposals(names, calls, *devices):
    graph, costs = training_step(calls)
    cluster = cluster_of(*devices)
    return graph, families.propose(names, graph, costs.everywhere(cluster), cluster)


def by_layer(family, calls, *devices):
    graph, found = proposals([family], calls, *devices)
    return found[family].by_layer(graph)


def test_alternating_changes_device_at_every_layer_and_takes_all_in_turn():
    layers = by_layer("alternating", deepconn(), "d0", "d1")
    order = [
        *("lookup", "embedding", "item_conv", "item_pool", "item_flat", "item_dense"),
        *("lookup@2", "embedding@2", "user_conv", "user_pool", "user_flat", "user_dense"),
        *("rating", "loss"),
    ]
    assert [layers[layer] for layer in order] == ["d0", "d1"] * 7
    calls = calls_of("a < in:x; b < a; c < b; d < c")
    layers = by_layer("alternating", calls, "d0", "d1", "d2")
    assert [layers[name] for name in "abcd"] == ["d0", "d1", "d2", "d0"]


def test_single_brings_the_users_own_split_and_one_placement_for_each_other_kind():
    graph, costs = training_step(deepconn())
    cluster = cluster_of(FAST, replace(FAST, name="GPU:1"), hosts=[HOST])
    given = graph, costs.everywhere(cluster), cluster
    own = families.propose(["alternating"], *given)["alternating"]
    found = families.propose(["single", "towers"], *given, replace(own, label="as-written"))
    assert list(found) == ["single", "single-cpu", "as-written", "towers"]


def test_of_two_equal_placements_the_later_names_the_earlier():
    _, found = proposals(["single", "alternating", "alternating-ops"], deepconn(), "d0")
    assert isinstance(found["single"], Placement)
    for name in ("alternating", "alternating-ops"):
        reason = "the same placement as single"
        assert found[name] == NotApplicable(family=name, reason=reason)


def test_an_unknown_family_names_the_known_ones():
    splits = "batch, variables-on-host, variables-spread, mirrored, batch-towers"
    with pytest.raises(AdvisorError, match=rf"'tower'; there are single, .*searched, {splits}$"):
        families.check_names(["single", "tower"])
    families.check_names(list(families.FAMILIES))


def test_single_has_all_ops_on_the_first_device_and_what_is_bad_on_purpose_says_so():
    graph, found = proposals(tuple(families.FAMILIES), deepconn(), "d0", "d1")
    assert found["single"] == references.on_device(graph, "d0")
    assert found["single"].device_of == {op.name: "d0" for op in graph.placed_ops}
    assert found["single"].rationale == "everything on d0"
    saying = {n for n, p in found.items() if "bad on purpose" in getattr(p, "rationale", "")}
    assert saying == families.WORST_CASE_FAMILIES == {"alternating", "alternating-ops"}


@cases(200)
@given(models(), st.sampled_from(CLUSTERS), st.booleans(), st.booleans())
def test_every_proposal_for_any_model_fits_the_graph_and_keeps_variables_whole(
    calls, cluster, priced, for_gpus
):
    graph, costs = training_step(calls)
    if for_gpus:
        kinds = frozenset({"CPU", "GPU"})
        graph = OpGraph([op._replace(device_kinds=kinds) for op in graph.ops], graph.edges)
    if not priced:
        costs = CostTable(costs={})
    found = families.propose(tuple(families.FAMILIES), graph, costs.everywhere(cluster), cluster)
    assert [name for name in found if name in families.FAMILIES] == list(families.FAMILIES)
    assert set(found) - set(families.FAMILIES) <= {"single-gpu-1", "single-cpu"}
    placements = []
    for label, proposal in found.items():
        assert proposal.family == (label if label in families.FAMILIES else "single")
        if isinstance(proposal, Placement):
            assert proposal.label == label
            assert proposal.device_of not in placements
            placements.append(proposal.device_of)
            proposal.check(graph, cluster.place_names())
            assert proposal.rationale
            assert "\n" not in proposal.rationale
        else:
            assert proposal.reason
            assert "\n" not in proposal.reason


def test_every_op_takes_the_next_device_but_those_of_one_variable_stay_together():
    graph = graph_of(
        "x Placeholder input; c Const constant; w VarHandleOp variable - w; "
        "read ReadVariableOp - - w < w; mul MatMul < x read c; relu Relu < mul; "
        "assign AssignVariableOp update - w < relu"
    )
    found = proposed(references.propose_alternating_ops, graph, CostTable(costs={}), "a", "b", "c")
    assert found.device_of == {
        "x": "a", "w": "b", "read": "b", "mul": "c", "relu": "a", "assign": "b",
    }  # fmt: skip
    assert found.rationale.startswith("the device changes at each of 4 ops, those of one variable")


SINGLE_HOST = replace(HOST, launch_overhead_ns=2)
GPU = Device(name="GPU:0", kind="GPU", host="CPU:0")
ONE_LAYER, ITS_COSTS = training_step(calls_of("a < in:x"))


def others(*devices, hosts, graph=ONE_LAYER):
    cluster = cluster_of(*devices, hosts=hosts)
    return references.on_other_kinds(graph, ITS_COSTS.everywhere(cluster), cluster)


def test_another_kind_of_device_is_a_single_of_its_own():
    # An op and its gradient of 50 ns, an input and four ops of a metric: a launch of 2 ns for each.
    [found] = others(GPU, hosts=[SINGLE_HOST, replace(SINGLE_HOST, name="CPU:1")])
    assert (found.label, found.family) == ("single-cpu", "single")
    assert set(found.device_of.values()) == {"CPU:0"}
    assert found.rationale == "everything on CPU:0, where its ops take 114 ns in all"
    slow = replace(GPU, name="GPU:1", peak_flops_per_s=1e12)
    again = replace(slow, name="GPU:2", host="CPU:1")
    found = others(GPU, slow, again, hosts=[SINGLE_HOST])
    assert [placement.label for placement in found] == ["single-gpu-1", "single-cpu"]
    assert set(found[0].device_of.values()) == {"GPU:1"}
    first, *rest = ONE_LAYER.placed_ops
    made = OpGraph([first._replace(device_kinds=frozenset({"GPU"})), *rest], [])
    assert others(GPU, hosts=[SINGLE_HOST], graph=made) == ()


PREDICTED = {
    "single": 100, "towers": 90, "towers-forward-only": 120, "pipeline": 80,
    "parameters-on-host": 95, "alternating": 200, "alternating-ops": 400,
}  # fmt: skip


def test_the_baseline_and_what_may_win_run_and_not_what_is_there_to_be_understood():
    assert families.to_run(PREDICTED) == ("single", "towers", "pipeline", "parameters-on-host")
    predicted = {
        "single": 100, "towers": 90, "pipeline": 76, "alternating": 143,
        "searched": 78, "batch": 70, "variables-spread": 74, "mirrored": 72,
    }  # fmt: skip
    others = tuple(label for label in predicted if label != "alternating")
    assert families.to_run(predicted) == others
    assert "single-cpu" in families.to_run({**PREDICTED, "single-cpu": 85})
    assert "single-cpu" not in families.to_run({**PREDICTED, "searched": 79, "single-cpu": 99})
    assert {"alternating", "alternating-ops", "towers-forward-only"} == families.TO_UNDERSTAND
    fast = dict.fromkeys(families.TO_UNDERSTAND, 9)
    assert families.to_run({"single": 100, **fast}) == ("single",)
    # Two predictions are apart by their errors in a case of twenty: e^(1.645 * √2 * 0.12) = 1.32.
    losing = {"single": 100, "pipeline": 131, "searched": 133, "parameters-on-host": 300}
    assert families.to_run(losing) == ("single", "pipeline")
    assert families.to_run({**losing, "pipeline": 400}) == ("single", "searched")
    ties = dict.fromkeys(["single", "pipeline", "parameters-on-host", "single-cpu", "searched"], 7)
    assert families.to_run(ties) == ("single", "pipeline", "parameters-on-host", "single-cpu")


@given(st.dictionaries(st.sampled_from([*families.NAMES, "single-cpu"]), st.integers(0, 99)))
def test_the_best_by_prediction_always_runs_and_few_do(predicted):
    chosen = families.to_run(predicted)
    assert [label for label in predicted if label in chosen] == list(chosen)
    assert len(chosen) <= len(families.ALWAYS_RUN) + families.BEST_BY_PREDICTION
    splits = [label for label in predicted if label not in {"single", *families.TO_UNDERSTAND}]
    if splits:
        assert min(splits, key=predicted.__getitem__) in chosen


BOTH = frozenset({"CPU", "GPU"})
GRAPH = OpGraph(
    [
        Op("mul", "MatMul", device_kinds=BOTH),
        Op("find", "LookupTableFindV2"),
        Op("new", "New", device_kinds=BOTH),
    ],
    [],
)
COSTS = price({"mul": 20, "find": 20})


def test_a_device_is_busy_with_ops_and_launches_and_alike_whatever_its_name():
    slow = replace(FAST, name="GPU:1", launch_overhead_ns=7)
    cluster = cluster_of(FAST, slow, hosts=[HOST])
    assert busy_ns(GRAPH, COSTS.everywhere(cluster), cluster) == {
        "GPU:0": {"mul": 25},
        "GPU:1": {"mul": 27},
    }
    cluster = cluster_of("d0")
    assert busy_ns(GRAPH, COSTS.everywhere(cluster), cluster) == {"d0": {"mul": 20, "find": 20}}
    assert alike(FAST, replace(FAST, name="GPU:1", host="CPU:1"))
    assert not alike(FAST, replace(FAST, name="GPU:1", memory_bytes=1))


# Two layers, the second with a weight, which has a slot.
TRAINING = graph_of(
    "first MatMul - first; w VarHandleOp variable second w; "
    "slot VarHandleOp variable second slot; read ReadVariableOp - second w < w; "
    "second MatMul - second < read first; gradient MatMul backward second < second; "
    "update ResourceApplyMomentum update second w < w slot gradient"
)


def written(asked, graph=TRAINING):
    return references.as_written(graph, asked, cluster_of("a", "b")).device_of


def test_ops_variables_and_gradients_stand_where_scopes_ask():
    graph = graph_of("x MatMul - layer; y MatMul - layer; z MatMul - layer; u MatMul - silent")
    asked = {"x": "GPU:0", "y": "GPU:1", "z": "GPU:1"}
    assert references.layer_devices(graph, asked) == {"layer": "GPU:1"}
    assert references.layer_devices(graph, {"x": "GPU:0", "y": "GPU:1"}) == {"layer": "GPU:0"}
    scopes = {"first": "CPU:0", "read": "CPU:1", "second": "CPU:1"}
    here = written(scopes | {"w": "CPU:0", "slot": "CPU:1"})
    assert {here[name] for name in ("w", "slot", "read", "update")} == {"a"}
    assert here["second"] == "b"
    there = written(scopes | {"w": "CPU:1", "slot": "CPU:0"})
    assert {there[name] for name in ("w", "slot", "read", "update")} == {"b"}
    scopes["w"] = "CPU:1"
    assert written(scopes)["gradient"] == "a"
    assert written(scopes | {"gradient": "CPU:1"})["gradient"] == "b"
    chain = graph_of("x MatMul - layer; y MatMul - layer < x; z MatMul - layer < y")
    asked = {"x": "CPU:1", "y": "CPU:0", "z": "CPU:1"}
    assert written(asked, chain) == {"x": "b", "y": "a", "z": "b"}
