"""The op graph of a split step: copies, merges, where they run and what crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from split_steps import op, training, wired, wiring_of_training

from placement_advisor.candidates.batch_split.plan import plan_split
from placement_advisor.candidates.batch_split.split_graph import (
    Merge,
    SplitGraph,
    Wiring,
    split_graph,
)
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import Placement, placed_ops

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph


def split(*shares: int) -> SplitGraph:
    graphs = [training(share) for share in shares]
    wiring = wiring_of_training(*shares)
    return split_graph(training(sum(shares)), graphs, wiring, [("loss", 0)], ["update"])


def test_each_replica_computes_its_share_and_the_update_runs_once():
    graph = split(3, 1).graph
    assert graph.op("replica_0/product").output_bytes == (24,)
    assert graph.op("replica_1/product").output_bytes == (8,)
    assert "product" not in graph
    assert [each.name for each in graph.ops if each.role is Role.UPDATE] == ["update"]


def test_the_update_reads_the_weighted_mean_of_the_gradients():
    graph = split(3, 1).graph
    assert {e.producer for e in graph.inputs_of("update")} == {
        "weights",
        "rate",
        "replicas/gradient/merged",
    }
    merged = graph.inputs_of("replicas/gradient/merged")
    assert {e.producer for e in merged} == {
        "replica_0/gradient/weighted",
        "replica_1/gradient/weighted",
    }
    assert {e.size_bytes for e in merged} == {16}


def test_replicas_stand_on_their_devices_and_what_is_shared_on_the_first():
    found = split(2, 2)
    placement = found.placed(["a", "b"], label="even", rationale="")
    placement.check(found.graph, ("a", "b"))
    assert placement.device_of["replica_0/product"] == "a"
    assert placement.device_of["replica_1/gradient/weighted"] == "b"
    assert {placement.device_of[n] for n in ("read", "update", "replicas/loss/merged")} == {"a"}


def test_the_weights_cross_to_each_other_replica_and_its_gradient_and_loss_come_back():
    found = split(2, 1, 1)
    device_of = found.placed(["a", "b", "c"], label="", rationale="").device_of
    crossing = sorted(
        (edge.producer, device_of[edge.consumer])
        for edge in found.graph.edges
        if not edge.is_control
        and edge.producer in device_of
        and device_of[edge.producer] != device_of[edge.consumer]
    )
    assert crossing == [
        ("read", "b"),
        ("read", "c"),
        ("replica_1/gradient/weighted", "a"),
        ("replica_1/loss/weighted", "a"),
        ("replica_2/gradient/weighted", "a"),
        ("replica_2/loss/weighted", "a"),
    ]


def test_rows_are_looked_up_beside_the_table_though_its_whole_value_is_read():
    def rows(samples: int) -> OpGraph:
        return wired(
            [
                op("ids", 4 * samples, kind="Placeholder", role=Role.INPUT),
                op("table", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(variable="table"),
                op("read", 4_000, kind="ReadVariableOp")._replace(variable="table"),
                op("rows", 32 * samples, kind="GatherV2"),
                op("product", 8 * samples),
            ],
            {"read": ["table"], "rows": ["read", "ids"], "product": ["rows"]},
        )

    whole, shares = rows(4), [rows(2), rows(2)]
    plan = plan_split(whole, shares[0], [("product", 0)])
    axes = {(name, 0): 0 for name in ("ids", "product")}
    wiring = Wiring(plan=plan, merges={("product", 0): Merge.CONCAT}, shares=(2, 2), axes=axes)
    found = split_graph(whole, shares, wiring, [("product", 0)], [])
    device_of = found.placed(["a", "b"], label="", rationale="").device_of
    assert [device_of[f"replica_{i}/rows"] for i in (0, 1)] == ["a", "a"]
    assert [device_of[f"replica_{i}/product"] for i in (0, 1)] == ["a", "b"]
    # The same where the unsplit step is spread over a group of its own.
    unsplit = {"ids": "p", "table": "p", "read": "p", "rows": "q", "product": "q"}
    within = Placement(label="", family="", device_of=unsplit, rationale="")
    groups = [{"p": "a", "q": "b"}, {"p": "c", "q": "d"}]
    device_of = found.laid_out(within, groups, label="", rationale="").device_of
    assert [device_of[f"replica_{i}/rows"] for i in (0, 1)] == ["a", "a"]
    assert [device_of[f"replica_{i}/product"] for i in (0, 1)] == ["b", "d"]


def test_each_replica_is_laid_out_on_a_group_as_the_unsplit_step_is():
    found = split(2, 2)
    within = Placement(
        label="two",
        family="two",
        device_of={
            each.name: "q" if each.name in ("product", "gradient") else "p"
            for each in placed_ops(training(4))
        },
        rationale="",
    )
    groups = [{"p": "a", "q": "b"}, {"p": "c", "q": "d"}]
    placement = found.laid_out(within, groups, label="even", rationale="why")
    placement.check(found.graph, ("a", "b", "c", "d"))
    device_of = placement.device_of
    assert (placement.family, placement.label, placement.rationale) == ("batch", "even", "why")
    assert [device_of[f"replica_{i}/product"] for i in (0, 1)] == ["b", "d"]
    assert [device_of[f"replica_{i}/loss"] for i in (0, 1)] == ["a", "c"]
    # What a replica does to its part is beside the part, what joins parts beside the first one's.
    assert device_of["replica_1/gradient/weighted"] == "d"
    assert device_of["replicas/gradient/merged"] == "b"
    assert {device_of[n] for n in ("read", "update", "replicas/loss/merged")} == {"a"}


def test_every_op_says_where_it_was_copied_from():
    found = split(3, 1)
    assert found.source["replica_1/product"] == (1, "product")
    assert found.source["update"] == (None, "update")
    assert "replicas/loss/merged" not in found.source


def test_a_shared_op_that_waits_for_a_replicated_one_waits_for_all():
    wiring = wiring_of_training(2, 2)
    assert wiring.befores("product", None) == ("replica_0/product", "replica_1/product")
    assert wiring.befores("product", 1) == ("replica_1/product",)
    assert wiring.befores("read", 1) == ("read",)


def test_joining_ops_move_what_they_read_and_write():
    joined = split(3, 1).graph.op("replicas/gradient/merged")
    assert (joined.kind, joined.bytes_accessed, joined.role) == ("AddN", 48, Role.BACKWARD)


def test_what_is_the_same_for_all_comes_from_the_first_replica():
    wiring = wiring_of_training(2, 2)
    merges = {**wiring.merges, ("loss", 0): Merge.SAME}
    same = type(wiring)(plan=wiring.plan, shares=(2, 2), merges=merges, axes={})
    assert same.tensor(("loss", 0), None) == ("replica_0/loss", 0)


def divided(size_bytes: int | None) -> OpGraph:
    """Return a step of four samples in shares of 2, 1 and 1 that divides what a shared op makes."""

    def swapping(samples: int) -> OpGraph:
        each = None if size_bytes is None else size_bytes * samples // 4
        state = op("state", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(variable="state")
        return wired(
            [
                op("x", 8 * samples, role=Role.INPUT),
                state,
                op("swap", each, kind="Exchange")._replace(variable="state"),
                op("product", 8 * samples),
            ],
            {"swap": ["state", "x"], "product": ["swap"]},
        )

    whole, shares = swapping(4), (2, 1, 1)
    plan = plan_split(whole, swapping(1), [("product", 0)])
    merges = dict.fromkeys(plan.merged, Merge.CONCAT)
    axes = dict.fromkeys((*plan.merged, *plan.divided), 0)
    wiring = Wiring(plan=plan, shares=shares, merges=merges, axes=axes)
    traces = [swapping(share) for share in shares]
    return split_graph(whole, traces, wiring, [("product", 0)], []).graph


def test_what_is_divided_has_the_bytes_of_each_share():
    graph = divided(400)
    assert graph.op("replicas/swap/divided").output_bytes == (200, 100, 100)
    # Numbers of four bytes: the samples of three shares, and one axis.
    assert graph.op("replicas/swap/sizes").output_bytes == (12,)
    assert graph.op("replicas/swap/axis").output_bytes == (4,)


def test_parts_of_what_has_no_known_size_have_none():
    apart = divided(None).op("replicas/swap/divided")
    assert apart.output_bytes == (None, None, None)
    assert apart.bytes_accessed is None
