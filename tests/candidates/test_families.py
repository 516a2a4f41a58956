import subprocess
import sys
from dataclasses import replace

import pytest
from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from step_graphs import Call, cluster_of, deepconn, models, training_step

from placement_advisor.candidates import references
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import (
    FAMILIES,
    WORST_CASE_FAMILIES,
    check_names,
    propose,
)
from placement_advisor.cost.table import CostTable
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Edge, Op, Role
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
    return graph, propose(names, graph, costs.everywhere(cluster), cluster)


def by_layer(family, calls, *devices):
    graph, found = proposals([family], calls, *devices)
    return found[family].by_layer(graph)


def test_alternating_changes_device_at_every_layer_down_one_tower_then_down_the_next():
    layers = by_layer("alternating", deepconn(), "d0", "d1")
    order = [
        *("lookup", "embedding", "item_conv", "item_pool", "item_flat", "item_dense"),
        *("lookup@2", "embedding@2", "user_conv", "user_pool", "user_flat", "user_dense"),
        *("rating", "loss"),
    ]
    assert [layers[layer] for layer in order] == ["d0", "d1"] * 7


def test_alternating_takes_all_devices_in_turn():
    calls = [Call(name="a", feeds=("in:x",)), *(
        Call(name=b, feeds=(a,)) for a, b in ("ab", "bc", "cd")
    )]  # fmt: skip
    layers = by_layer("alternating", calls, "d0", "d1", "d2")
    assert [layers[name] for name in "abcd"] == ["d0", "d1", "d2", "d0"]


def test_alternating_needs_two_layers():
    _, found = proposals(["alternating"], [Call(name="only", feeds=("in:x",))], "d0", "d1")
    reason = "the step has no two layers between which the device could change"
    assert found == {"alternating": NotApplicable(family="alternating", reason=reason)}


def test_alternating_has_what_serves_no_layer_on_the_first_device():
    def op(name: str, layer: str | None) -> Op:
        return Op(name=name, kind="Op", role=Role.FORWARD, layer=layer, output_bytes=(4,))

    graph = OpGraph(
        [op("x", "first"), op("y", "second"), op("alone", None)],
        [Edge(producer="x", port=0, consumer="y", size_bytes=4)],
    )
    found = references.propose_alternating(graph, {}, cluster_of("d0", "d1"))
    assert isinstance(found, Placement)
    assert found.device_of == {"x": "d0", "y": "d1", "alone": "d0"}


def test_proposals_come_in_the_order_asked_for():
    _, found = proposals(["towers", "single"], deepconn(), "d0", "d1")
    assert list(found) == ["towers", "single"]


def test_of_two_equal_placements_the_later_names_the_earlier():
    _, found = proposals(["single", "alternating", "alternating-ops"], deepconn(), "d0")
    assert isinstance(found["single"], Placement)
    for name in ("alternating", "alternating-ops"):
        reason = "the same placement as single"
        assert found[name] == NotApplicable(family=name, reason=reason)


def test_an_unknown_family_names_the_known_ones():
    splits = "batch, variables-on-host, variables-spread, mirrored, batch-towers"
    with pytest.raises(AdvisorError, match=rf"'tower'; there are single, .*searched, {splits}$"):
        check_names(["single", "tower"])
    check_names(list(FAMILIES))


def test_what_is_bad_on_purpose_says_so():
    _, found = proposals(tuple(FAMILIES), deepconn(), "d0", "d1")
    saying = {n for n, p in found.items() if "bad on purpose" in getattr(p, "rationale", "")}
    assert saying == WORST_CASE_FAMILIES == {"alternating", "alternating-ops"}


def test_names_are_checked_without_networkx_and_compiled_code():
    code = (
        "import sys; import placement_advisor.candidates.families as f; f.check_names(['single']);"
        "slow = {'networkx', 'tensorflow', 'matplotlib', 'numba'};"
        "assert not slow & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
    found = propose(tuple(FAMILIES), graph, costs.everywhere(cluster), cluster)
    assert [name for name in found if name in FAMILIES] == list(FAMILIES)
    assert set(found) - set(FAMILIES) <= {"single-gpu-1", "single-cpu"}
    placements = []
    for label, proposal in found.items():
        assert proposal.family == (label if label in FAMILIES else "single")
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
