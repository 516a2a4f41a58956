import pytest
from step_graphs import Call, cluster_of, deepconn, proposed, training_step

from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.towers import propose_towers
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Device


def split(calls, count=2, *, priced=True):
    graph, costs = training_step(calls)
    devices = tuple(f"d{i}" for i in range(count))
    placement = proposed(propose_towers, graph, costs if priced else CostTable(costs={}), *devices)
    if isinstance(placement, Placement):
        placement.check(graph, devices)
        return placement, placement.by_layer(graph)
    return placement, {}


def chain(name, length, *, cost_ns, start="in:x", end="join"):
    names = [f"{name}_{i}" for i in range(length)]
    return [
        Call(name=one, feeds=(before,), cost_ns=cost_ns, variables=((f"{one}_w", 80),))
        for before, one in zip([start, *names], names, strict=False)
    ]


def joined(*towers, rest=()):
    calls = [call for tower in towers for call in tower]
    ends = tuple(tower[-1].name for tower in towers)
    return [*calls, Call(name="join", feeds=ends), *rest, Call(name="loss", feeds=("join", "in:y"))]


def test_deepconn_is_split_into_its_two_towers_with_all_that_is_shared_in_one_place():
    placement, layers = split(deepconn())
    assert placement.rationale == (
        "2 towers joined by 'rating': item_* on d0, user_* on d1; shared lookup and embedding on d0"
    )
    assert {layer for layer, device in layers.items() if device == "d1"} == {
        "user_conv", "user_pool", "user_flat", "user_dense",
    }  # fmt: skip


def test_deepconn_gradients_slots_and_updates_follow_their_tower():
    graph, costs = training_step(deepconn())
    device_of = proposed(propose_towers, graph, costs, "d0", "d1").device_of
    for role in (Role.BACKWARD, Role.UPDATE):
        for op in graph.ops:
            if op.role is role and "user_" in op.name and "rate" not in op.name:
                expected = "d0" if op.name.endswith(("/scale", "/cast")) else "d1"
                assert device_of[op.name] == expected, op.name
    shared = [name for name in device_of if name.startswith("words") or name == "vocab"]
    assert {device_of[name] for name in shared} == {"d0"}
    assert {device_of[name] for name in ("in:user", "in:item", "in:label", "metric")} == {"d0"}


def test_a_layer_moves_to_its_shared_variable_with_ops_that_do_not_read_it():
    graph, costs = training_step(deepconn())
    mask = Op(name="embedding@2/mask", kind="NotEqual", layer="embedding@2", output_bytes=(8,))
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
    dense = (("kernel", 40),)
    calls = [
        Call(name="left_in", feeds=("in:l",)),
        Call(name="dense", feeds=("left_in",), variables=dense, cost_ns=1_000),
        Call(name="right_in", feeds=("in:r",)),
        Call(name="dense@2", feeds=("right_in",), variables=dense, cost_ns=900),
        Call(name="distance", feeds=("dense", "dense@2")),
    ]
    placement, layers = split(calls)
    assert layers["dense@2"] == layers["right_in"] == "d1"
    assert placement.device_of["kernel"] == placement.device_of["dense@2/read/kernel"] == "d0"
    assert placement.device_of["grad/dense@2"] == "d1"


def test_towers_that_share_large_variables_alone_are_not_said_to_be_uneven():
    dense = (("kernel", 1_000_000),)
    calls = [
        Call(name="dense", feeds=("in:l",), variables=dense, cost_ns=1_000),
        Call(name="dense@2", feeds=("in:r",), variables=dense, cost_ns=1_000),
        Call(name="distance", feeds=("dense", "dense@2")),
    ]
    placement, _ = split(calls)
    assert placement.reason == (
        "the towers joined by 'distance' share variables that are more bytes than what their "
        "layers take and give: 100 % of the compute would stay on d0"
    )


def test_a_shared_variable_sits_with_the_layers_that_read_it_at_most_cost():
    calls = [
        Call(name="a_in", feeds=("in:l",), cost_ns=5_000),
        Call(name="d", feeds=("a_in",), variables=(("w", 40),), cost_ns=100),
        Call(name="d@2", feeds=("in:r",), variables=(("w", 40),), cost_ns=200),
        Call(name="sum", feeds=("d", "d@2")),
    ]
    placement, layers = split(calls)
    assert layers["a_in"] == "d0"
    assert placement.device_of["w"] == "d1"


def test_three_towers_of_unequal_size_are_packed_longest_first_on_two_devices():
    # 6 * 100 alone on d0; 3 * 100 and 2 * 100 on d1.
    calls = joined(*(chain(n, k, cost_ns=100) for n, k in (("b", 3), ("a", 6), ("c", 2))))
    placement, layers = split(calls)
    assert {layer[0] for layer, device in layers.items() if device == "d1"} == {"b", "c"}
    assert layers["join"] == layers["loss"] == "d0"
    assert placement.rationale == "3 towers joined by 'join': a_* on d0, b_* and c_* on d1"


def test_four_devices_leave_two_idle_for_two_towers_and_say_so():
    placement, layers = split(
        joined(chain("a", 2, cost_ns=100), chain("b", 2, cost_ns=100)), count=4
    )
    assert set(layers.values()) == {"d0", "d1"}
    assert placement.rationale.endswith("; d2 and d3 idle: there are more devices than towers")


def test_one_device_needs_no_towers():
    found, _ = split(joined(chain("a", 2, cost_ns=100), chain("b", 2, cost_ns=100)), count=1)
    assert found == NotApplicable(family="towers", reason="there is one device")


def test_five_towers_fill_four_devices():
    towers = [chain(name, 1, cost_ns=100) for name in "abcde"]
    _, layers = split(joined(*towers), count=4)
    assert [layers[f"{name}_0"] for name in "abcde"] == ["d0", "d1", "d2", "d3", "d0"]


def test_without_known_costs_towers_still_go_to_different_devices():
    _, layers = split(joined(chain("a", 2, cost_ns=1), chain("b", 2, cost_ns=1)), priced=False)
    assert layers["a_0"] != layers["b_0"]


def test_an_auxiliary_head_goes_with_the_one_tower_that_it_needs():
    head = Call(name="head", feeds=("b_1",))
    _, layers = split(joined(chain("a", 3, cost_ns=100), chain("b", 2, cost_ns=100), rest=(head,)))
    assert layers["head"] == layers["b_0"] == "d1"


def test_the_join_with_the_smallest_trunk_and_fullest_device_is_chosen():
    early = [*chain("a", 1, cost_ns=100), *chain("b", 1, cost_ns=100)]
    calls = [
        *early,
        Call(name="near", feeds=("a_0", "b_0"), cost_ns=100),
        *chain("c", 3, cost_ns=100),
        Call(name="far", feeds=("near", "c_2"), cost_ns=10),
    ]
    # near: 400 + 10 of trunk beside 100; far: 10 of trunk beside 300.
    placement, layers = split(calls)
    assert placement.rationale.startswith("2 towers joined by 'far'")
    assert layers["near"] == layers["a_0"] == layers["b_0"] != layers["c_0"]


def test_towers_that_read_the_same_input_are_towers():
    calls = joined(
        chain("wide", 1, cost_ns=100, start="in:x"), chain("deep", 3, cost_ns=100, start="in:x")
    )
    placement, _ = split(calls)
    assert placement.rationale == "2 towers joined by 'join': deep_* on d0, wide_0 on d1"


def test_a_chain_has_no_towers_and_its_label_is_none():
    calls = [*chain("a", 4, cost_ns=100), Call(name="loss", feeds=("a_3", "in:label"))]
    assert split(calls)[0] == NotApplicable(
        family="towers", reason="no layer joins two independent towers: every layer feeds the next"
    )


def test_a_label_that_costs_nothing_to_prepare_is_no_tower():
    label = Call(name="reshape", feeds=("in:label",), cost_ns=0)
    calls = [*chain("a", 4, cost_ns=100), label, Call(name="loss", feeds=("a_3", "reshape"))]
    assert split(calls)[0].reason.endswith("every layer feeds the next")


def test_a_label_with_a_cheap_cast_leaves_all_compute_in_one_place():
    cast = Call(name="cast", feeds=("in:label",), cost_ns=2)
    calls = [*chain("a", 4, cost_ns=100), cast, Call(name="loss", feeds=("a_3", "cast"))]
    assert split(calls)[0].reason == (
        "the towers joined by 'loss' are too uneven: 100 % of the compute would stay on d0"
    )


@pytest.mark.parametrize("skip", [True, False])
def test_branches_after_a_common_stem_are_no_towers(skip):
    stem = chain("stem", 2, cost_ns=100)
    left = Call(name="left", feeds=("stem_1",))
    right = Call(name="right", feeds=("stem_1",))
    ends = ("stem_1", "left") if skip else ("left", "right")
    calls = [*stem, left, *([] if skip else [right]), Call(name="add", feeds=ends)]
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
    cluster = cluster_of(*(Device(name=n, kind="CPU", launch_overhead_ns=10) for n in ("a", "b")))
    found = propose_towers(graph, costs.everywhere(cluster), cluster)
    assert found.rationale == "2 towers joined by 'join': many_* on a, few_0 on b"


def test_what_the_optimizer_does_for_the_trunk_fills_its_device_first():
    # Towers of 200, 200 and 100 ns: c goes to d0, unless that has 200 ns of updates to do as well.
    towers = (chain(n, k, cost_ns=100) for n, k in (("a", 2), ("b", 2), ("c", 1)))
    top = Call(name="top", feeds=("join",), variables=(("w", 80),))
    graph, costs = training_step(joined(*towers, rest=(top,)))
    update = {"w/total": OpCost(time_ns=200, basis=CostBasis.MEASURED)}
    for more, device in (({}, "d0"), (update, "d1")):
        priced = CostTable(costs={**costs.costs, **more})
        layers = proposed(propose_towers, graph, priced, "d0", "d1").by_layer(graph)
        assert layers["c_0"] == device
