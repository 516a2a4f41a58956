from itertools import pairwise

import pytest
from drawn_cases import cases
from hypothesis import given
from placed_steps import price
from step_graphs import calls_of, cluster_of, deepconn, models, proposed, training_step

from placement_advisor.candidates import towers
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.towers import propose_towers, propose_towers_forward_only
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Device

FOUR = ("d0", "d1", "d2", "d3")


def split(calls, count=2, *, priced=True):
    graph, costs = training_step(calls)
    costs = costs if priced else CostTable(costs={})
    placement = proposed(propose_towers, graph, costs, *FOUR[:count])
    return placement, placement.by_layer(graph) if isinstance(placement, Placement) else {}


def chain(name, length, *, cost_ns):
    names = ["in:x", *(f"{name}_{i}" for i in range(length))]
    calls = (f"{one} {cost_ns} < {before} {one}_w=80" for before, one in pairwise(names))
    return calls_of("; ".join(calls))


def joined(*towers, rest=()):
    calls = [call for tower in towers for call in tower]
    ends = " ".join(tower[-1].name for tower in towers)
    return [*calls, *calls_of(f"join < {ends}"), *rest, *calls_of("loss < join in:y")]


def test_deepconn_is_split_into_its_two_towers_with_all_that_is_shared_in_one_place():
    placement, layers = split(deepconn())
    assert placement.rationale == (
        "2 towers joined by 'rating': item_* on d0, user_* on d1; shared lookup and embedding on d0"
    )
    assert {layer for layer, device in layers.items() if device == "d1"} == {
        "user_conv", "user_pool", "user_flat", "user_dense",
    }  # fmt: skip


def test_a_layer_moves_to_its_shared_variable_with_ops_that_do_not_read_it():
    graph, costs = training_step(deepconn())
    mask = Op("embedding@2/mask", "NotEqual", layer="embedding@2", output_bytes=(8,))
    of_ids = Edge("lookup@2/op", mask.name, 0, 2_560)
    masked = OpGraph([*graph.ops, mask], [*graph.edges, of_ids])
    device_of = proposed(propose_towers, masked, costs, "d0", "d1").device_of
    assert {device_of[name] for name in ("words", "embedding@2/op", mask.name)} == {"d0"}


def test_an_embedding_smaller_than_its_output_is_read_across_and_its_layer_stays():
    placement, layers = split(deepconn(word_bytes=10_000, vector_bytes=64_000))
    assert layers["embedding@2"] == "d1"
    assert placement.device_of["words"] == "d0"
    assert layers["lookup@2"] == "d0"  # A lookup runs where its table is.


def test_a_small_dense_kernel_shared_by_siamese_towers_is_read_across():
    calls = calls_of(
        "left_in < in:l; dense 1000 < left_in kernel=40; right_in < in:r; "
        "dense@2 900 < right_in kernel=40; distance < dense dense@2"
    )
    placement, layers = split(calls)
    assert layers["dense@2"] == layers["right_in"] == "d1"
    assert placement.device_of["kernel"] == placement.device_of["dense@2/read/kernel"] == "d0"
    assert placement.device_of["grad/dense@2"] == "d1"


def test_towers_that_share_large_variables_alone_are_not_said_to_be_uneven():
    calls = calls_of(
        "dense 1000 < in:l kernel=1000000; dense@2 1000 < in:r kernel=1000000; "
        "distance < dense dense@2"
    )
    placement, _ = split(calls)
    assert placement.reason == (
        "the towers joined by 'distance' share variables that are more bytes than what their "
        "layers take and give: 100 % of the compute would stay on d0"
    )


def test_a_shared_variable_sits_with_the_layers_that_read_it_at_most_cost():
    calls = calls_of("a_in 5000 < in:l; d 100 < a_in w=40; d@2 200 < in:r w=40; sum < d d@2")
    placement, layers = split(calls)
    assert layers["a_in"] == "d0"
    assert placement.device_of["w"] == "d1"


def test_towers_are_packed_longest_first_and_devices_that_are_left_are_idle():
    # 6 * 100 alone on d0; 3 * 100 and 2 * 100 on d1.
    calls = joined(*(chain(n, k, cost_ns=100) for n, k in (("b", 3), ("a", 6), ("c", 2))))
    placement, layers = split(calls)
    assert {layer[0] for layer, device in layers.items() if device == "d1"} == {"b", "c"}
    assert layers["join"] == layers["loss"] == "d0"
    assert placement.rationale == "3 towers joined by 'join': a_* on d0, b_* and c_* on d1"
    calls = joined(chain("a", 2, cost_ns=100), chain("b", 2, cost_ns=100))
    placement, layers = split(calls, count=4)
    assert set(layers.values()) == {"d0", "d1"}
    assert placement.rationale.endswith("; d2 and d3 idle: there are more devices than towers")
    _, layers = split(calls, priced=False)
    assert layers["a_0"] != layers["b_0"]
    placement, _ = split(joined(chain("wide", 1, cost_ns=100), chain("deep", 3, cost_ns=100)))
    assert placement.rationale == "2 towers joined by 'join': deep_* on d0, wide_0 on d1"


def test_an_auxiliary_head_goes_with_the_one_tower_that_it_needs():
    head = calls_of("head < b_1")
    _, layers = split(joined(chain("a", 3, cost_ns=100), chain("b", 2, cost_ns=100), rest=head))
    assert layers["head"] == layers["b_0"] == "d1"


def test_the_join_with_the_smallest_trunk_and_fullest_device_is_chosen():
    first = [*chain("a", 1, cost_ns=100), *chain("b", 1, cost_ns=100), *calls_of("near < a_0 b_0")]
    calls = [*first, *chain("c", 3, cost_ns=100), *calls_of("far 10 < near c_2")]
    # near: 400 + 10 of trunk beside 100; far: 10 of trunk beside 300.
    placement, layers = split(calls)
    assert placement.rationale.startswith("2 towers joined by 'far'")
    assert layers["near"] == layers["a_0"] == layers["b_0"] != layers["c_0"]


def test_what_is_no_tower_or_leaves_all_compute_in_one_place_is_said():
    layers = chain("a", 4, cost_ns=100)
    calls = [*layers, *calls_of("loss < a_3 in:label")]
    assert split(calls)[0] == NotApplicable(
        family="towers", reason="no layer joins two independent towers: every layer feeds the next"
    )
    calls = [*layers, *calls_of("cast 2 < in:label; loss < a_3 cast")]
    assert split(calls)[0].reason == (
        "the towers joined by 'loss' are too uneven: 100 % of the compute would stay on d0"
    )
    found = within_a_pair(calls_of("only < in:x"), *FOUR)
    assert found.family == "batch-towers"
    assert found.reason.startswith("no layer joins two independent towers")


@pytest.mark.parametrize("skip", [True, False])
def test_branches_after_a_common_stem_are_no_towers(skip):
    branches = "add < stem_1 left" if skip else "right < stem_1; add < left right"
    calls = [*chain("stem", 2, cost_ns=100), *calls_of(f"left < stem_1; {branches}")]
    assert split(calls)[0].reason == (
        "no layer joins two independent towers: the branches into 'add' both come from 'stem_1'"
    )


def test_of_uneven_devices_the_faster_gets_the_heaviest_tower_and_the_trunk():
    calls = joined(*(chain(n, k, cost_ns=100) for n, k in (("a", 4), ("b", 2), ("c", 1))))
    graph, costs = training_step(calls)
    cluster = cluster_of("slow", "fast")
    tables = {"slow": costs.scaled(2), "fast": costs}
    layers = propose_towers(graph, tables, cluster).by_layer(graph)
    # a is done at 400 on fast; b and c at 400 and 600 on slow, but c at 500 on fast.
    assert {layer for layer, device in layers.items() if device == "slow"} == {"b_0", "b_1"}
    assert layers["join"] == layers["loss"] == "fast"


def test_launches_count_in_what_a_tower_takes():
    # Two ops of 20 ns against six of no time: with 10 ns a launch the six are the longer tower.
    calls = joined(chain("few", 1, cost_ns=40), chain("many", 3, cost_ns=0))
    graph, costs = training_step(calls)
    devices = (Device(name=name, kind="CPU", launch_overhead_ns=10) for name in "ab")
    found = proposed(propose_towers, graph, costs, *devices)
    assert found.rationale == "2 towers joined by 'join': many_* on a, few_0 on b"


def test_what_the_optimizer_does_for_the_trunk_fills_its_device_first():
    # Towers of 200, 200 and 100 ns: c goes to d0, unless that has 200 ns of updates to do as well.
    towers = (chain(n, k, cost_ns=100) for n, k in (("a", 2), ("b", 2), ("c", 1)))
    graph, costs = training_step(joined(*towers, rest=calls_of("top < join w=80")))
    for more, device in (({}, "d0"), ({"w/total": 200}, "d1")):
        priced = CostTable(costs={**costs.costs, **price(more).costs})
        layers = proposed(propose_towers, graph, priced, "d0", "d1").by_layer(graph)
        assert layers["c_0"] == device


def both(calls):
    graph, costs = training_step(calls)
    return graph, *(
        proposed(propose, graph, costs, "d0", "d1")
        for propose in (propose_towers, propose_towers_forward_only)
    )


def test_the_backward_pass_of_the_second_tower_stays_on_the_first_device():
    _, split, found = both(deepconn())
    changed = {name for name, d in found.device_of.items() if d != split.device_of[name]}
    # Of each of three variables: the sum of its gradient, its momentum's change and its step.
    assert changed == {
        *(f"grad/user_{layer}" for layer in ("conv", "pool", "flat", "dense")),
        *(
            f"user_{variable}/{op}"
            for variable in ("kernel", "bias", "weights")
            for op in ("total", "change", "delta")
        ),
    }
    assert {found.device_of[name] for name in changed} == {"d0"}
    # Half of what its layers cost is in their gradients.
    assert found.rationale == (
        "towers by `with tf.device`: 13 ops of the backward pass and the optimizer (2.65 µs) stay "
        "on d0, whatever the forward pass says"
    )


def test_a_step_without_a_backward_pass_has_nothing_to_leave_behind():
    graph, costs = training_step(deepconn())
    kept = [op for op in graph.ops if op.role is not Role.BACKWARD]
    names = {op.name for op in kept}
    edges = [e for e in graph.edges if {e.producer, e.consumer} <= names]
    found = proposed(propose_towers_forward_only, OpGraph(kept, edges), costs, "d0", "d1")
    reason = "the step has no backward pass"
    assert found == NotApplicable(family="towers-forward-only", reason=reason)


@cases(60)
@given(models())
def test_forward_ops_and_all_that_takes_a_variable_stand_as_in_towers(calls):
    graph, split, found = both(calls)
    assert isinstance(found, Placement) == isinstance(split, Placement)
    if isinstance(found, Placement):
        for name, device in found.device_of.items():
            op = graph.op(name)
            computed = op.role in (Role.BACKWARD, Role.UPDATE) and op.variable is None
            assert device == ("d0" if computed else split.device_of[name])


def within_a_pair(calls, *devices):
    return proposed(towers.within_a_pair, *training_step(calls), *devices)


def test_a_pair_is_laid_out_as_towers_on_two_devices_and_two_pairs_need_four():
    alone = proposed(propose_towers, *training_step(deepconn()), "d0", "d1")
    found = within_a_pair(deepconn(), *FOUR)
    assert found.device_of == alone.device_of
    assert set(found.device_of.values()) == {"d0", "d1"}
    assert (found.label, found.family) == ("batch-towers", "batch-towers")
    for count in (1, 2, 3):
        found = within_a_pair(deepconn(), *FOUR[:count])
        assert found.reason == f"two pairs of devices are 4, and there are {count}"


def test_what_devices_get_is_added_up_by_pairs():
    assert towers.by_pair([3, 2, 1, 1]) == [5, 2]
    assert towers.by_pair([1, 1, 1, 1, 9]) == [2, 2]
