from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from placed_steps import PlacedStep, edge, op, placed_steps

from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device
from placement_advisor.simulator.memory import MemoryTracker, peak_memory
from placement_advisor.simulator.schedule import (
    MAX_CONTRIBUTORS,
    BufferUse,
    Contributor,
    OpRun,
    PeakMemory,
    Transfer,
    shortages,
)


def peaks_of(
    ops: list[Op], edges: list[Edge], *transfers: Transfer, **device_of: str
) -> dict[str, PeakMemory]:
    """Return the peaks of a step whose ops run one after the other as given, each for 10 ns."""
    graph = OpGraph(ops, edges)
    runs = [
        OpRun(
            op=each.name,
            device=device_of.get(each.name, "a"),
            ready_ns=10 * place,
            start_ns=10 * place,
            end_ns=10 * place + 10,
        )
        for place, each in enumerate(ops)
        if each.role is not Role.CONSTANT
    ]
    return peak_memory(graph, runs, transfers, ["a", "b"])


def peak_bytes(
    ops: list[Op], edges: list[Edge], *transfers: Transfer, **device_of: str
) -> tuple[int, int]:
    """Return the peaks of device a and device b."""
    peaks = peaks_of(ops, edges, *transfers, **device_of)
    return peaks["a"].size_bytes, peaks["b"].size_bytes


def copy(
    producer: str, size_bytes: int | None, start_ns: int, end_ns: int, *, receive_work_ns: int = 0
) -> Transfer:
    return Transfer(
        producer=producer,
        port=0,
        source="a",
        target="b",
        size_bytes=size_bytes,
        start_ns=start_ns,
        end_ns=end_ns,
        receive_work_ns=receive_work_ns,
    )


def variable(name: str, size_bytes: int) -> Op:
    return Op(
        name=name,
        kind="VarHandleOp",
        role=Role.VARIABLE,
        variable=name,
        output_bytes=(None,),
        parameter_bytes=size_bytes,
    )


def reading(name: str, size_bytes: int) -> Op:
    return Op(name=name, kind="ReadVariableOp", variable="v", output_bytes=(size_bytes,))


def update(name: str, kind: str) -> Op:
    return Op(name=name, kind=kind, role=Role.UPDATE, variable="v")


def test_a_chain_holds_two_neighbours_at_a_time() -> None:
    # x is there until y has ended, so 100 + 30; then 30 + 50.
    ops = [op("x", 100), op("y", 30), op("z", 50)]
    assert peak_bytes(ops, [edge("x", "y", 100), edge("y", "z", 30)]) == (130, 0)


def test_a_tensor_lives_until_its_last_reader_has_ended() -> None:
    ops = [op("x", 100), op("y", 30), op("z", 50), op("w", 7)]
    edges = [edge("x", "y", 100), edge("y", "z", 30), edge("z", "w", 50), edge("x", "w", 100)]
    assert peak_bytes(ops, edges)[0] == 100 + 30 + 50


def test_an_op_without_duration_holds_its_inputs_and_outputs_side_by_side() -> None:
    graph = OpGraph([op("x", 100), op("y", 30)], [edge("x", "y", 100)])
    runs = [OpRun(op=name, device="a", ready_ns=5, start_ns=5, end_ns=5) for name in ("x", "y")]
    assert peak_memory(graph, runs, [], ["a"])["a"].size_bytes == 130


@pytest.mark.parametrize(
    ("kind", "more_bytes"), [("Relu", 0), ("AddV2", 0), ("Softmax", 0), ("MatMul", 100)]
)
def test_an_elementwise_op_writes_over_an_input_that_nobody_else_holds(
    kind: str, more_bytes: int
) -> None:
    ops = [op("x", 100), op("y", 100, kind=kind), op("z", 7)]
    edges = [edge("x", "y", 100), edge("y", "z", 100)]
    assert peak_bytes(ops, edges)[0] == max(100 + more_bytes, 100 + 7)


def test_an_elementwise_op_leaves_alone_what_others_will_read() -> None:
    ops = [op("x", 100), op("y", 100, kind="Relu"), op("z", 100, kind="Relu")]
    edges = [edge("x", "y", 100), edge("x", "z", 100)]
    # y has a buffer of its own, which is free when z takes that of x.
    assert peak_bytes(ops, edges)[0] == 200


def test_an_elementwise_op_cannot_write_over_an_input_of_another_size() -> None:
    ops = [op("x", 100), op("y", 400, kind="AddV2")]
    assert peak_bytes(ops, [edge("x", "y", 100)])[0] == 500


def test_a_loss_puts_its_gradient_where_its_input_lay() -> None:
    kind = "SparseSoftmaxCrossEntropyWithLogits"
    ops = [op("logits", 100), op("loss", 8, 100, kind=kind), op("use", 1)]
    edges = [edge("logits", "loss", 100), edge("loss", "use", 100, port=1)]
    assert peak_bytes(ops, edges)[0] == 108


@pytest.mark.parametrize("kind", ["Reshape", "Sum"])
def test_what_changes_no_size_shares_its_input_and_keeps_it_alive(kind: str) -> None:
    ops = [op("x", 100), op("shape", 8), op("flat", 100, kind=kind), op("y", 30), op("z", 50)]
    edges = [
        edge("x", "flat", 100),
        edge("shape", "flat", 8),
        edge("flat", "y", 100),
        edge("y", "z", 30),
        edge("flat", "z", 100),
    ]
    # When z runs: x's buffer, held by flat; y; z.
    assert peak_bytes(ops, edges)[0] == 100 + 30 + 50


def test_variables_constants_and_inputs_stay_and_reading_a_variable_adds_nothing() -> None:
    ops = [
        variable("v", 1_000),
        op("c", 5, role=Role.CONSTANT),
        op("batch", 60, role=Role.INPUT),
        reading("read", 1_000),
        op("x", 30),
        op("y", 40),
    ]
    edges = [
        edge("v", "read", None),
        edge("read", "x", 1_000),
        edge("c", "x", 5),
        edge("batch", "x", 60),
        edge("x", "y", 30),
    ]
    peak = peaks_of(ops, edges)["a"]
    assert peak.size_bytes == 1_000 + 5 + 60 + 30 + 40
    assert peak.resident_bytes == 1_000 + 5 + 60


def test_a_constant_stands_on_each_device_that_reads_it() -> None:
    ops = [op("c", 5, role=Role.CONSTANT), op("x", 30), op("y", 7)]
    assert peak_bytes(ops, [edge("c", "x", 5), edge("c", "y", 5)], y="b") == (35, 12)


def test_a_variable_of_which_rows_are_gathered_is_read_by_copy() -> None:
    gather = Op(name="gather", kind="ResourceGather", variable="v", output_bytes=(20,))
    ops = [variable("v", 1_000), gather, reading("read", 1_000), op("x", 30)]
    edges = [edge("v", "gather", None), edge("v", "read", None), edge("read", "x", 1_000)]
    assert peak_bytes(ops, edges)[0] == 1_000 + 1_000 + 30


def dense_update(kind: str) -> tuple[list[Op], list[Edge]]:
    ops = [
        variable("v", 1_000),
        reading("read", 1_000),
        op("gradient", 1_000),
        update("update", kind),
        op("last", 10),
    ]
    edges = [
        edge("v", "read", None),
        edge("v", "update", None),
        edge("gradient", "update", 1_000),
        edge("read", "gradient", 1_000),
    ]
    return ops, edges


@pytest.mark.parametrize("kind", ["AssignSubVariableOp", "ResourceApplyAdam", "AssignVariableOp"])
def test_an_update_works_in_place_where_nobody_reads_the_variable_any_more(kind: str) -> None:
    ops, edges = dense_update(kind)
    assert peak_bytes(ops, edges)[0] == 2_000


@pytest.mark.parametrize(
    ("kind", "expected_bytes"),
    # A dense update copies what is read; then variable, value and what is read are three buffers.
    # An assignment takes the value's buffer: there are no more than two.
    [("AssignSubVariableOp", 3_000), ("ResourceApplyAdam", 3_000), ("AssignVariableOp", 2_010)],
)
def test_an_update_leaves_its_buffer_to_a_late_reader(kind: str, expected_bytes: int) -> None:
    ops, edges = dense_update(kind)
    edges.append(edge("read", "last", 1_000))
    assert peak_bytes(ops, edges)[0] == expected_bytes


def test_an_assigned_value_that_others_read_is_the_variable() -> None:
    ops = [variable("v", 1_000), op("value", 1_000), update("update", "AssignVariableOp")]
    ops += [op("later", 600), op("last", 1)]
    edges = [edge("v", "update", None), edge("value", "update", 1_000)]
    edges += [edge("value", "last", 1_000), edge("later", "last", 600)]
    # When the old buffer is gone, "later" fits in its place.
    assert peak_bytes(ops, edges)[0] == 2_000


def test_a_copy_engine_holds_a_copy_at_both_ends_from_its_start_to_its_end() -> None:
    ops = [op("x", 100), op("y", 40), op("last", 1), op("reader", 30), op("on_b", 70)]
    edges = [edge("x", "reader", 100)]
    transfer = copy("x", 100, 10, 30)
    # On a, y runs while x is still leaving. On b, the copy is gone when on_b runs.
    assert peak_bytes(ops, edges, transfer, reader="b", on_b="b") == (140, 130)


def test_a_copy_that_is_unpacked_takes_memory_when_that_begins() -> None:
    ops = [op("x", 100), op("on_b", 70), op("pause", 1), op("reader", 30)]
    edges = [edge("x", "reader", 100)]
    devices = {"on_b": "b", "reader": "b"}
    # on_b runs from 10 to 20.
    copied = copy("x", 100, 10, 25)
    assert peak_bytes(ops, edges, copied, **devices)[1] == 170
    unpacked = copy("x", 100, 10, 25, receive_work_ns=5)
    assert peak_bytes(ops, edges, unpacked, **devices)[1] == 130


def test_a_tensor_that_goes_to_another_process_does_not_reuse_a_buffer() -> None:
    ops = [op("x", 100), op("y", 100, kind="Relu"), op("reader", 1)]
    edges = [edge("x", "y", 100), edge("y", "reader", 100)]
    copied = copy("y", 100, 20, 20)
    assert peak_bytes(ops, edges, copied, reader="b")[0] == 100
    unpacked = copy("y", 100, 20, 20, receive_work_ns=5)
    assert peak_bytes(ops, edges, unpacked, reader="b")[0] == 200


def test_a_tensor_from_another_process_may_be_written_over_by_what_goes_there() -> None:
    ops = [op("x", 100), op("y", 100, kind="Relu"), op("reader", 1)]
    edges = [edge("x", "y", 100), edge("y", "reader", 100)]
    there = copy("x", 100, 10, 10, receive_work_ns=5)
    back = replace(copy("y", 100, 20, 20, receive_work_ns=5), source="b", target="a")
    assert peak_bytes(ops, edges, there, back, y="b")[1] == 100


def test_control_signals_take_no_memory() -> None:
    ops = [op("x", 100), op("y", 30)]
    signal = Transfer(
        producer="x",
        port=CONTROL_PORT,
        source="a",
        target="b",
        size_bytes=0,
        start_ns=10,
        end_ns=10,
    )
    edges = [edge("x", "y", None, port=CONTROL_PORT)]
    assert peak_bytes(ops, edges, signal, y="b") == (100, 30)


def test_tensors_of_unknown_size_are_left_out() -> None:
    assert peak_bytes([op("x", None, 40), op("y", 2)], [edge("x", "y", None)])[0] == 40


def test_a_copy_of_unknown_size_takes_no_memory_that_anybody_knows() -> None:
    ops = [op("x", None), op("y", 2)]
    assert peak_bytes(ops, [edge("x", "y", None)], copy("x", None, 10, 10), y="b") == (0, 2)


def test_results_of_a_loop_that_nobody_reads_take_no_memory() -> None:
    ops = [op("loop", 100, 30, kind="While"), op("y", 2)]
    assert peak_bytes(ops, [edge("loop", "y", 30, port=1)])[0] == 32


def test_a_list_that_holds_a_variable_for_each_trip_of_a_loop_takes_no_memory() -> None:
    loop = Op(name="loop", kind="While", output_bytes=(3_000, 3_000, 30), trips=3)
    ops = [variable("v", 1_000), loop, op("y", 2)]
    edges = [edge("v", "loop", None), *(edge("loop", "y", 3_000, port=port) for port in (0, 1))]
    # There is one variable of that size: the other list has contents of its own.
    assert peak_bytes(ops, edges)[0] == 1_000 + 3_000 + 2


def test_a_list_that_holds_the_value_of_a_variable_for_each_trip_takes_no_memory_either() -> None:
    loop = Op(name="loop", kind="While", output_bytes=(3_000, 3_000, 30), trips=3)
    read = Op(name="read", kind="ReadVariableOp", output_bytes=(1_000,))
    ops = [variable("v", 1_000), read, op("z", 1_000), loop, op("y", 2)]
    edges = [
        edge("v", "read", None),
        edge("read", "loop", 1_000),
        # What an op made may be another tensor in each trip, of which this one is the first.
        edge("z", "loop", 1_000),
        *(edge("loop", "y", 3_000, port=port) for port in (0, 1)),
    ]
    assert peak_bytes(ops, edges)[0] == 1_000 + 1_000 + 3_000


def test_after_a_single_trip_a_result_as_large_as_a_variable_has_a_buffer_of_its_own() -> None:
    loop = Op(name="loop", kind="While", output_bytes=(1_000,), trips=1)
    ops = [variable("v", 1_000), loop, op("y", 2)]
    edges = [edge("v", "loop", None), edge("loop", "y", 1_000)]
    assert peak_bytes(ops, edges)[0] == 1_000 + 1_000 + 2


def test_ops_of_a_host_do_not_count_for_its_device() -> None:
    ops = [op("x", 100), op("y", 30)]
    assert peak_bytes(ops, [edge("x", "y", 100)], x="host") == (30, 0)


def test_the_peak_says_when_it_was_and_what_it_consisted_of() -> None:
    ops = [
        variable("v", 900),
        variable("slot", 800),
        reading("read", 900),
        op("x", 700),
        op("gradient", 600, role=Role.BACKWARD),
        Op(name="small", kind="MatMul", role=Role.UPDATE, output_bytes=(20,)),
        op("more", 10),
    ]
    edges = [
        edge("v", "read", None),
        edge("slot", "small", None),
        edge("x", "small", 700),
        edge("x", "more", 700),
        edge("gradient", "small", 600),
        edge("read", "more", 900),
        edge("small", "more", 20),
    ]
    peak = peaks_of(ops, edges)["a"]
    assert peak == PeakMemory(
        size_bytes=900 + 800 + 700 + 600 + 20,
        at_ns=50,
        resident_bytes=1_700,
        contributors=(
            Contributor(name="v", held=BufferUse.VARIABLE, size_bytes=900),
            Contributor(name="slot", held=BufferUse.OPTIMIZER_SLOT, size_bytes=800),
            Contributor(name="x", held=BufferUse.ACTIVATION, size_bytes=700),
            Contributor(name="gradient", held=BufferUse.GRADIENT, size_bytes=600),
            Contributor(name="small", held=BufferUse.UPDATE, size_bytes=20),
        ),
        rest_bytes={},
    )


def test_of_two_peaks_of_one_height_the_first_is_told() -> None:
    memory = MemoryTracker()
    memory.release(memory.take("first", BufferUse.ACTIVATION, 10, now_ns=5))
    memory.take("second", BufferUse.ACTIVATION, 10, now_ns=7)
    peak = memory.peak()
    assert peak.at_ns == 5
    assert [each.name for each in peak.contributors] == ["first"]


def test_what_is_not_named_is_summed_by_what_it_is_held_for() -> None:
    ops = [op(f"x{i}", 100 + i) for i in range(8)]
    ops.append(op("all", 1))
    peak = peaks_of(ops, [edge(f"x{i}", "all", 100 + i) for i in range(8)])["a"]
    named = [each.name for each in peak.contributors]
    assert named == ["x7", "x6", "x5", "x4", "x3"]
    assert peak.rest_bytes == {BufferUse.ACTIVATION: 100 + 101 + 102 + 1}


def test_a_device_that_is_too_small_is_named_with_what_it_lacks_and_why() -> None:
    ops = [variable("v", 3_000_000_000), op("x", 500_000_000)]
    peaks = peaks_of(ops, [])
    small = Device(name="a", kind="GPU", memory_bytes=2_500_000_000)
    unknown = Device(name="b", kind="GPU")
    (shortage,) = shortages(peaks, [small, unknown])
    assert shortage.missing_bytes == 1_000_000_000
    assert str(shortage) == (
        "on a the step holds 3.50 GB at 10 ns, 1.00 GB more than the 2.50 GB there, "
        "most of it for v (variable, 3.00 GB), x (activation, 500 MB)"
    )
    assert not shortages(peaks, [Device(name="a", kind="GPU", memory_bytes=3_500_000_000)])


@given(placed_steps())
def test_a_peak_holds_at_least_its_largest_op_and_at_most_all_there_is(step: PlacedStep) -> None:
    schedule = step.simulate()
    names = step.cluster.device_names()
    peaks = peak_memory(step.graph, schedule.runs, schedule.transfers, names)
    made = dict.fromkeys(names, 0)
    largest = dict.fromkeys(names, 0)
    device_of = {run.op: run.device for run in schedule.runs}
    for each in step.graph.ops:
        known = [size for size in each.output_bytes if size is not None]
        if each.role is Role.CONSTANT:
            for device in names:
                made[device] += sum(known)
            continue
        device = device_of[each.name]
        if device not in made:
            continue
        made[device] += each.parameter_bytes + sum(known)
        # A read of a variable makes nothing but by copy.
        if each.kind == "ReadVariableOp":
            made[device] += 1_000
        elif each.kind == "MatMul" and each.role is not Role.VARIABLE:
            largest[device] = max([largest[device], *known])
    for transfer in schedule.transfers:
        if transfer.target in made:
            made[transfer.target] += transfer.size_bytes or 0
    for device, peak in peaks.items():
        assert max(largest[device], peak.resident_bytes) <= peak.size_bytes <= made[device]
        named = sum(each.size_bytes for each in peak.contributors)
        assert named + sum(peak.rest_bytes.values()) == peak.size_bytes
        assert len(peak.contributors) <= MAX_CONTRIBUTORS
        assert peak.at_ns <= schedule.step_ns
