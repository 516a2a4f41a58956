from dataclasses import replace
from functools import partial

import pytest
from placed_steps import place
from split_steps import split_traces, split_training, split_updates, step, training

from placement_advisor.candidates.batch_split.data_parallel import (
    BY_COPIES,
    FAMILIES,
    ONE_BY_ONE,
    DataParallelSteps,
)
from placement_advisor.candidates.batch_split.split_graph import ON_HOST, SPREAD, Merge, split_graph
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.graph.op import Edge, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device


def split(*shares):
    return split_graph(split_training(*shares))


def test_each_replica_computes_its_share_and_the_update_reads_the_weighted_mean():
    found = split(3, 1)
    graph = found.graph
    assert graph.op("replica_0/product").output_bytes == (24,)
    assert graph.op("replica_1/product").output_bytes == (8,)
    assert "product" not in graph
    assert [each.name for each in graph.ops if each.role is Role.UPDATE] == ["update"]
    read = {e.producer for e in graph.inputs_of("update")}
    assert read == {"weights", "rate", "replicas/gradient/merged"}
    merged = graph.inputs_of("replicas/gradient/merged")
    assert {e.producer for e in merged} == {
        "replica_0/gradient/weighted",
        "replica_1/gradient/weighted",
    }
    assert {e.size_bytes for e in merged} == {16}
    joined = graph.op("replicas/gradient/merged")
    assert (joined.kind, joined.bytes_accessed, joined.role) == ("AddN", 48, Role.BACKWARD)
    assert found.last == 1
    assert found.source["replica_1/product"] == (1, "product")
    assert found.source["update"] == (None, "update")
    assert "replicas/loss/merged" not in found.source


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


GROUPS = [{"p": "a", "q": "b"}, {"p": "c", "q": "d"}]


def test_rows_are_looked_up_beside_the_table_though_its_whole_value_is_read():
    text = (
        "ids 4n Placeholder input; table 0 VarHandleOp variable table; "
        "read 4000 ReadVariableOp - table < table; rows 32n GatherV2 < read ids; product 8n < rows"
    )
    at = partial(step, text=text)
    found = split_graph(split_traces(at, (2, 2), [("product", 0)], merge=Merge.CONCAT))
    device_of = found.placed(["a", "b"], label="", rationale="").device_of
    assert [device_of[f"replica_{i}/rows"] for i in (0, 1)] == ["a", "a"]
    assert [device_of[f"replica_{i}/product"] for i in (0, 1)] == ["a", "b"]
    # The same where the unsplit step is spread over a group of its own.
    unsplit = {"ids": "p", "table": "p", "read": "p", "rows": "q", "product": "q"}
    device_of = found.laid_out(place(unsplit), GROUPS, label="", rationale="").device_of
    assert [device_of[f"replica_{i}/rows"] for i in (0, 1)] == ["a", "a"]
    assert [device_of[f"replica_{i}/product"] for i in (0, 1)] == ["b", "d"]


def test_each_replica_is_laid_out_on_a_group_as_the_unsplit_step_is():
    found = split(2, 2)
    names = [each.name for each in training(4).placed_ops]
    within = place({name: "q" if name in ("product", "gradient") else "p" for name in names})
    placement = found.laid_out(within, GROUPS, label="even", rationale="why")
    placement.check(found.graph, ("a", "b", "c", "d"))
    device_of = placement.device_of
    assert (placement.family, placement.label, placement.rationale) == ("batch", "even", "why")
    assert [device_of[f"replica_{i}/product"] for i in (0, 1)] == ["b", "d"]
    assert [device_of[f"replica_{i}/loss"] for i in (0, 1)] == ["a", "c"]
    # What a replica does to its part is beside the part, what joins parts beside the first one's.
    assert device_of["replica_1/gradient/weighted"] == "d"
    assert device_of["replicas/gradient/merged"] == "b"
    assert {device_of[n] for n in ("read", "update", "replicas/loss/merged")} == {"a"}


def test_what_is_shared_waits_for_all_replicas_and_what_is_the_same_comes_from_the_first():
    wiring = split_training().wiring
    assert wiring.befores("product", None) == ("replica_0/product", "replica_1/product")
    assert wiring.befores("product", 1) == ("replica_1/product",)
    assert wiring.befores("read", 1) == ("read",)
    same = split_training(loss=Merge.SAME).wiring
    assert same.tensor(("loss", 0), None) == ("replica_0/loss", 0)


def divided(size):
    """Return a step of four samples in shares of 2, 1 and 1 that divides what a shared op makes."""
    text = (
        f"x 8n - input; state 0 VarHandleOp variable state; swap {size} Exchange - state < "
        "state x; product 8n < swap"
    )
    at = partial(step, text=text)
    return split_graph(split_traces(at, (2, 1, 1), [("product", 0)], merge=Merge.CONCAT)).graph


def test_what_is_divided_has_the_bytes_of_each_share_or_none():
    graph = divided("100n")
    assert graph.op("replicas/swap/divided").output_bytes == (200, 100, 100)
    # Numbers of four bytes: the samples of three shares, and one axis.
    assert graph.op("replicas/swap/sizes").output_bytes == (12,)
    assert graph.op("replicas/swap/axis").output_bytes == (4,)
    apart = divided("?").op("replicas/swap/divided")
    assert apart.output_bytes == (None, None, None)
    assert apart.bytes_accessed is None


DEVICES = [Device(name=f"GPU:{i}", kind="GPU", host="CPU:0") for i in range(2)]
EVEN = split_training()


def found(family, traces=EVEN, devices=DEVICES):
    proposed = DataParallelSteps(traces).propose(family, devices, "all")
    assert not isinstance(proposed, NotApplicable)
    split, placement = proposed
    assert placement.label == family
    placement.check(split.graph, ("GPU:0", "GPU:1", "CPU:0", "all"))
    return split, placement


def places(family, kind, traces=EVEN):
    split, placement = found(family, traces)
    return {placement.device_of[op.name] for op in split.graph.ops if op.kind == kind}


UPDATE = "ResourceApplyGradientDescent"


def test_variables_updates_and_sums_stand_where_the_family_says():
    stand = {family: places(family, UPDATE) for family in FAMILIES}
    mirrored = ("mirrored", "mirrored-one-by-one", "mirrored-by-copies")
    assert stand == {
        "batch": {"GPU:0"},
        "variables-on-host": {"CPU:0"},
        "variables-spread": {"GPU:0"},
        **{family: {"GPU:0", "GPU:1"} for family in mirrored},
    }
    assert {family: places(family, "VarHandleOp") for family in FAMILIES} == stand
    assert places(ON_HOST, "AddN") == {"CPU:0"}
    for family in ("mirrored", ONE_BY_ONE):
        assert places(family, "AddN") == set()
        assert places(family, "NcclAllReduce") == {"all"}
    assert places(BY_COPIES, "AddN") == {"GPU:0"}
    assert places(BY_COPIES, "NcclAllReduce") == set()
    for family in FAMILIES:
        assert places(family, "MatMul") == {"GPU:0", "GPU:1"}
    _, placement = found(SPREAD, split_updates())
    assert placement.device_of["weights"] == placement.device_of["update"] == "GPU:0"
    assert placement.device_of["weights 2"] == placement.device_of["update 2"] == "GPU:1"
    assert placement.device_of["replicas/gradient 2/merged"] == "GPU:1"
    split, _ = found("mirrored", EVEN.weak(2))
    assert split.graph.op("replica_1/product").output_bytes == (32,)
    alone = [replace(device, host=None) for device in DEVICES]
    answer = DataParallelSteps(EVEN).propose(ON_HOST, alone, "all")
    assert isinstance(answer, NotApplicable)


def test_collectives_read_gradients_one_by_one_packed_or_copied_to_one_device():
    packed = found("mirrored")[0].graph
    producers = [edge.producer for edge in packed.inputs_of("replicas/all_reduce/sum")]
    assert producers == ["replica_0/all_reduce/pack", "replica_1/all_reduce/pack"]
    for family, kind in ((ONE_BY_ONE, "NcclAllReduce"), (BY_COPIES, "AddN")):
        split, placement = found(family)
        (added,) = (op.name for op in split.graph.ops if op.kind == kind)
        producers = [edge.producer for edge in split.graph.inputs_of(added)]
        assert producers == ["replica_0/gradient", "replica_1/gradient"]
        readers = {edge.consumer for edge in split.graph.edges if edge.producer == added}
        assert readers == {"replica_0/update", "replica_1/update"}
    # The copies to one device are no collective.
    assert split.collective_of == {}
    assert placement.device_of[added] == "GPU:0"


def test_replicas_make_for_themselves_what_is_made_of_variables_alone():
    def reshaping(samples):
        plain = training(samples)
        reshape = plain.op("product")._replace(name="shaped", kind="Reshape", output_bytes=(16,))
        edges = [e for e in plain.edges if (e.producer, e.consumer) != ("read", "product")]
        edges += [Edge("read", "shaped", 0, 16), Edge("shaped", "product", 0, 16)]
        return OpGraph([*plain.ops, reshape], edges)

    traces = split_traces(reshaping, (2, 2), targets=("update",))
    assert places("batch", "Reshape", traces) == {"GPU:0"}
    for family in (ON_HOST, SPREAD):
        split, _ = found(family, traces)
        assert "shaped" not in split.graph
        read = [edge.producer for edge in split.graph.inputs_of("replica_1/product")]
        assert "replica_1/shaped" in read
        assert places(family, "Reshape", traces) == {"GPU:0", "GPU:1"}


@pytest.mark.parametrize("family", ["mirrored", ONE_BY_ONE, BY_COPIES])
def test_collectives_want_even_shares(family):
    answer = DataParallelSteps(split_training(2, 1)).propose(family, DEVICES, "all")
    assert answer == NotApplicable(family=family, reason="wants the same samples on each device")
