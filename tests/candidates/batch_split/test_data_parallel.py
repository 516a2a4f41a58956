"""Where variables stand and who adds gradients up, family by family."""

from __future__ import annotations

import pytest
from split_steps import split_training, split_updates, training, wiring_of_training

from placement_advisor.candidates.batch_split.data_parallel import (
    BY_COPIES,
    FAMILIES,
    ONE_BY_ONE,
    DataParallelSteps,
)
from placement_advisor.candidates.batch_split.plan import plan_split
from placement_advisor.candidates.batch_split.split_graph import (
    ON_HOST,
    SPREAD,
    Merge,
    SplitTraces,
    Wiring,
)
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.graph.op import Edge
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device

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


def test_variables_and_updates_stand_where_the_family_says():
    stand = {family: places(family, UPDATE) for family in FAMILIES}
    both = {"GPU:0", "GPU:1"}
    assert stand == {
        "batch": {"GPU:0"},
        "variables-on-host": {"CPU:0"},
        "variables-spread": {"GPU:0"},
        "mirrored": both,
        "mirrored-one-by-one": both,
        "mirrored-by-copies": both,
    }
    assert {family: places(family, "VarHandleOp") for family in FAMILIES} == stand


def test_gradients_are_added_up_beside_the_variables_or_by_all():
    assert places(ON_HOST, "AddN") == {"CPU:0"}
    for family in ("mirrored", ONE_BY_ONE):
        assert places(family, "AddN") == set()
        assert places(family, "NcclAllReduce") == {"all"}
    assert places(BY_COPIES, "AddN") == {"GPU:0"}
    assert places(BY_COPIES, "NcclAllReduce") == set()


def test_replicas_compute_on_a_device_each():
    for family in FAMILIES:
        assert places(family, "MatMul") == {"GPU:0", "GPU:1"}


def test_one_by_one_reads_gradients_and_a_pack_waits_for_all_of_them():
    one_by_one = found(ONE_BY_ONE)[0].graph
    (collective,) = (op.name for op in one_by_one.ops if op.kind == "NcclAllReduce")
    producers = [edge.producer for edge in one_by_one.inputs_of(collective)]
    assert producers == ["replica_0/gradient", "replica_1/gradient"]
    readers = {edge.consumer for edge in one_by_one.edges if edge.producer == collective}
    assert readers == {"replica_0/update", "replica_1/update"}
    packed = found("mirrored")[0].graph
    producers = [edge.producer for edge in packed.inputs_of("replicas/all_reduce/sum")]
    assert producers == ["replica_0/all_reduce/pack", "replica_1/all_reduce/pack"]


def test_without_collectives_each_gradient_is_copied_to_one_device_and_its_sum_to_all():
    split, placement = found(BY_COPIES)
    (added,) = (op.name for op in split.graph.ops if op.kind == "AddN")
    producers = [edge.producer for edge in split.graph.inputs_of(added)]
    assert producers == ["replica_0/gradient", "replica_1/gradient"]
    readers = {edge.consumer for edge in split.graph.edges if edge.producer == added}
    assert readers == {"replica_0/update", "replica_1/update"}
    assert split.collective_of == {}
    assert placement.device_of[added] == "GPU:0"


def test_replicas_make_for_themselves_what_is_made_of_variables_alone():
    def reshaping(samples):
        plain = training(samples)
        reshape = plain.op("product")._replace(name="shaped", kind="Reshape", output_bytes=(16,))
        edges = [e for e in plain.edges if (e.producer, e.consumer) != ("read", "product")]
        edges += [Edge("read", "shaped", 0, 16), Edge("shaped", "product", 0, 16)]
        return OpGraph([*plain.ops, reshape], edges)

    plan = plan_split(reshaping(4), reshaping(2), [("loss", 0)])
    wiring = Wiring(
        plan=plan,
        shares=(2, 2),
        merges=dict.fromkeys(plan.merged, Merge.MEAN),
        axes=dict.fromkeys(plan.divided, 0),
    )
    ends = {"outputs": (("loss", 0),), "targets": ("update",)}
    traces = SplitTraces(whole=reshaping(4), shares={2: reshaping(2)}, wiring=wiring, **ends)
    assert places("batch", "Reshape", traces) == {"GPU:0"}
    for family in (ON_HOST, SPREAD):
        split, _ = found(family, traces)
        assert "shaped" not in split.graph
        read = [edge.producer for edge in split.graph.inputs_of("replica_1/product")]
        assert "replica_1/shaped" in read
        assert places(family, "Reshape", traces) == {"GPU:0", "GPU:1"}


def test_layers_are_spread_over_devices_by_size():
    _, placement = found(SPREAD, split_updates())
    assert placement.device_of["weights"] == placement.device_of["update"] == "GPU:0"
    assert placement.device_of["weights 2"] == placement.device_of["update 2"] == "GPU:1"
    assert placement.device_of["replicas/gradient 2/merged"] == "GPU:1"


def test_weak_scaling_gives_every_replica_the_whole_batch():
    split, _ = found("mirrored", EVEN.weak(2))
    assert split.graph.op("replica_1/product").output_bytes == (32,)


@pytest.mark.parametrize("family", ["mirrored", ONE_BY_ONE, BY_COPIES])
def test_collectives_want_even_shares(family):
    shares = {2: training(2), 1: training(1)}
    uneven = SplitTraces(
        whole=training(3),
        shares=shares,
        wiring=wiring_of_training(2, 1),
        outputs=(("loss", 0),),
        targets=("update",),
    )
    answer = DataParallelSteps(uneven).propose(family, DEVICES, "all")
    assert answer == NotApplicable(family=family, reason="wants the same samples on each device")


def test_without_a_host_no_variables_stand_on_it():
    alone = [Device(name="GPU:0", kind="GPU"), Device(name="GPU:1", kind="GPU")]
    answer = DataParallelSteps(EVEN).propose(ON_HOST, alone, "all")
    assert isinstance(answer, NotApplicable)
