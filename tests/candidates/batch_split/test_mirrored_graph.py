"""The op graph of a mirrored step: variables everywhere, and what replicas exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from split_steps import op, split_updates, training, wired, wiring_of_training

from placement_advisor.candidates.batch_split.mirrored_graph import mirrored_graph
from placement_advisor.candidates.batch_split.plan import plan_split
from placement_advisor.candidates.batch_split.split_graph import Merge, Wiring
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import placed_ops
from placement_advisor.simulator.memory import peak_memory
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.graph.op_graph import OpGraph


def mirrored(*shares: int, wiring: Wiring | None = None) -> SplitGraph:
    graphs = [training(share) for share in shares]
    whole = training(sum(shares))
    found = wiring or wiring_of_training(*shares)
    return mirrored_graph(whole, graphs, found, [("loss", 0)], ["update"])


def crossing(found: SplitGraph) -> set[tuple[str, str]]:
    return {
        (edge.producer, edge.consumer)
        for edge in found.graph.edges
        if found.replica_of[edge.producer] != found.replica_of[edge.consumer]
    }


def test_every_replica_has_the_variables_and_makes_the_update() -> None:
    found = mirrored(2, 2)
    updates = {op.name: op.variable for op in found.graph.ops if op.role is Role.UPDATE}
    assert updates == {
        "replica_0/update": "replica_0/weights",
        "replica_1/update": "replica_1/weights",
    }
    assert found.graph.parameter_bytes == 2 * training(1).parameter_bytes


def test_updates_read_what_was_added_up_among_all() -> None:
    graph = mirrored(2, 2).graph
    for replica in (0, 1):
        read = {edge.producer for edge in graph.inputs_of(f"replica_{replica}/update")}
        assert f"replica_{replica}/all_reduce/done" in read
        assert f"replica_{replica}/gradient" not in read


def test_gradients_cross_in_chunks_and_nothing_else_does() -> None:
    found = mirrored(2, 2, 2, 2)
    assert {producer.split("/")[1] for producer, _ in crossing(found)} == {"all_reduce"}
    sizes = {
        edge.size_bytes
        for edge in found.graph.edges
        if (edge.producer, edge.consumer) in crossing(found)
    }
    assert sizes == {16 // 4}


def test_each_replica_computes_its_share_and_updates_cost_what_those_of_the_batch_do() -> None:
    found = mirrored(2, 2)
    assert found.graph.op("replica_1/product").output_bytes == (16,)
    assert found.source["replica_1/product"] == (1, "product")
    assert found.source["replica_1/update"] == (None, "update")


def test_what_is_not_of_a_share_is_as_large_as_for_the_whole_batch() -> None:
    def swapping(samples: int) -> OpGraph:
        return wired(
            [
                op("x", 8 * samples, role=Role.INPUT),
                op("state", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(variable="state"),
                op("swap", 8 * samples, kind="Exchange")._replace(variable="state"),
                op("product", 8 * samples),
            ],
            {"swap": ["state", "x"], "product": ["swap"]},
        )

    plan = plan_split(swapping(4), swapping(2), [("product", 0)])
    merges = dict.fromkeys(plan.merged, Merge.CONCAT)
    wiring = Wiring(plan=plan, shares=(2, 2), merges=merges, axes={("swap", 0): 0})
    found = mirrored_graph(swapping(4), [swapping(2)] * 2, wiring, [("product", 0)], [])
    assert found.graph.op("replica_1/swap").output_bytes == (32,)
    assert found.graph.op("replica_1/product").output_bytes == (16,)


def test_replicas_stand_on_a_device_each() -> None:
    found = mirrored(2, 2)
    placement = found.placed(["a", "b"], label="mirrored", rationale="")
    placement.check(found.graph, ("a", "b"))
    assert placement.family == "mirrored"
    for name, device in placement.device_of.items():
        assert device == {"replica_0": "a", "replica_1": "b"}[name.split("/")[0]]


def test_rows_of_a_table_are_gathered_in_turn_after_their_number() -> None:
    plain = wiring_of_training(2, 2)
    wiring = replace(plain, merges={**plain.merges, ("gradient", 0): Merge.WEIGHTED_CONCAT})
    graph = mirrored(2, 2, wiring=wiring).graph
    assert "replica_0/all_reduce/pack" not in graph
    rows = "all_gather/gradient"
    waits = {edge.producer for edge in graph.inputs_of(f"replica_1/{rows}/pack") if edge.is_control}
    assert waits == {f"replica_1/{rows}/lengths/done"}
    # Two replicas' rows are as many as those of the whole batch twice: each has a full gradient.
    assert graph.op(f"replica_1/{rows}/done").output_bytes == (32,)


def test_a_replica_keeps_its_own_gradients_until_it_has_the_sums() -> None:
    graph = mirrored(2, 2).graph
    for replica in ("replica_0", "replica_1"):
        reads = [edge.producer for edge in graph.inputs_of(f"{replica}/all_reduce/done")]
        assert f"{replica}/gradient" in reads
    # It does not touch them: of 16 bytes it moves the sums alone, in and out.
    assert graph.op("replica_0/all_reduce/done").bytes_accessed == 16 + 16


def test_a_replica_holds_gradients_thrice_when_it_takes_the_sums_apart() -> None:
    found = mirrored(2, 2)
    cluster = assumed_cluster(2)
    names = cluster.device_names()
    costs = {
        op.name: OpCost(time_ns=10, basis=CostBasis.MEASURED) for op in placed_ops(found.graph)
    }
    simulator = Simulator(found.graph, dict.fromkeys(names, CostTable(costs=costs)), cluster)
    schedule = simulator.schedule(found.placed(names, label="mirrored", rationale=""))
    peaks = peak_memory(found.graph, schedule.runs, schedule.transfers, names)
    # Weights, inputs and a rate stay; of 16 bytes each its own gradient, the sums and their parts.
    assert {peak.size_bytes for peak in peaks.values()} == {16 + 2 * 8 + 4 + 3 * 16}


def test_gradients_beside_rows_of_a_table_are_not_kept() -> None:
    graph = mirrored_lookups("Mul", first=Merge.SUM).graph
    assert "replica_0/all_gather/second/done" in graph
    reads = [edge.producer for edge in graph.inputs_of("replica_0/all_reduce/done")]
    assert reads == [f"replica_0/all_reduce/hop_{hop}" for hop in range(2)]


def test_gradients_that_follow_from_an_update_are_exchanged_after_it() -> None:
    """As those of a generator, which learns from the discriminator that was just updated."""
    traces = split_updates()
    parts = traces.whole, traces.replicas, traces.wiring, traces.outputs, traces.targets
    found = mirrored_graph(*parts)
    for replica in ("replica_0", "replica_1"):
        for name, exchange in (("update", "all_reduce"), ("update 2", "all_reduce_1")):
            read = {edge.producer for edge in found.graph.inputs_of(f"{replica}/{name}")}
            assert f"{replica}/{exchange}/done" in read
        waits = {e.producer for e in found.graph.inputs_of(f"{replica}/all_reduce_1/pack")}
        assert waits == {f"{replica}/gradient 2", f"{replica}/all_reduce/done"}
    exchanges = {name.split("/")[1] for pair in crossing(found) for name in pair}
    assert exchanges == {"all_reduce", "all_reduce_1"}


def test_without_gradients_replicas_have_nothing_to_exchange() -> None:
    plain = wiring_of_training(2, 2)
    wiring = replace(plain, merges={**plain.merges, ("gradient", 0): Merge.SAME})
    assert not crossing(mirrored(2, 2, wiring=wiring))


def looking_up_twice(samples: int, joining: str = "ConcatV2") -> OpGraph:
    """Return a step that adds the rows of two lookups up in one table: 8 bytes a row."""
    rows = 8 * samples
    ops = [
        op("x", rows, kind="Placeholder", role=Role.INPUT),
        op("table", 0, kind="VarHandleOp", role=Role.VARIABLE)._replace(
            variable="table", parameter_bytes=64
        ),
        op("axis", 4, kind="Const", role=Role.CONSTANT),
        op("first", rows, kind="Reshape", role=Role.BACKWARD),
        op("second", rows, kind="Reshape", role=Role.BACKWARD),
        op("joined", 2 * rows, kind=joining, role=Role.UPDATE),
        op("update", None, kind="ResourceScatterAdd", role=Role.UPDATE)._replace(
            variable="table", output_bytes=()
        ),
    ]
    reads = {
        "first": ["x"],
        "second": ["x"],
        "joined": ["first", "second", "axis"],
        "update": ["table", "joined"],
    }
    return wired(ops, reads)


def mirrored_lookups(
    joining: str = "ConcatV2", first: Merge = Merge.CONCAT, second: Merge = Merge.CONCAT
) -> SplitGraph:
    whole, share = looking_up_twice(4, joining), looking_up_twice(2, joining)
    plan = plan_split(whole, share, [])
    assert set(plan.merged) == {("first", 0), ("second", 0)}
    merges = {("first", 0): first, ("second", 0): second}
    wiring = Wiring(plan=plan, shares=(2, 2), merges=merges, axes={})
    return mirrored_graph(whole, [share, share], wiring, [], ["update"])


def test_rows_of_several_lookups_in_one_table_are_exchanged_once() -> None:
    found = mirrored_lookups()
    assert set(found.collective_of.values()) == {"all_gather/joined"}
    # Each replica joins its own rows, and the update has those of both.
    assert found.graph.op("replica_0/joined").output_bytes == (2 * 16,)
    assert found.graph.op("replica_0/all_gather/joined/done").output_bytes == (2 * 2 * 16,)
    read = {edge.producer for edge in found.graph.inputs_of("replica_1/update")}
    assert read == {"replica_1/table", "replica_1/all_gather/joined/done"}


def test_rows_are_exchanged_one_by_one_where_more_is_done_with_them_than_joining() -> None:
    found = mirrored_lookups("Mul")
    assert set(found.collective_of.values()) == {"all_gather/first", "all_gather/second"}
    read = {edge.producer for edge in found.graph.inputs_of("replica_1/joined")}
    assert {f"replica_1/all_gather/{rows}/done" for rows in ("first", "second")} < read


def test_gradients_of_several_uses_of_one_variable_are_exchanged_once() -> None:
    """As those of a recurrent kernel, which each time step of an unrolled layer reads."""
    graph = mirrored_lookups("AddN", Merge.SUM, Merge.SUM).graph
    for replica in ("replica_0", "replica_1"):
        packed = {edge.producer for edge in graph.inputs_of(f"{replica}/all_reduce/pack")}
        assert packed == {f"{replica}/joined"}
        added = {edge.producer for edge in graph.inputs_of(f"{replica}/joined")}
        assert {f"{replica}/first", f"{replica}/second"} < added
        read = {edge.producer for edge in graph.inputs_of(f"{replica}/update")}
        assert read == {f"{replica}/table", f"{replica}/all_reduce/done"}


def test_gradients_that_are_merged_in_two_ways_are_exchanged_one_by_one() -> None:
    graph = mirrored_lookups("AddN", Merge.SUM, Merge.MEAN).graph
    packed = {edge.producer for edge in graph.inputs_of("replica_0/all_reduce/pack")}
    assert packed == {"replica_0/first", "replica_0/second"}
