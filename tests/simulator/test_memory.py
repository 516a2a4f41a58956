from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from placed_steps import edge, op, placed_steps

from placement_advisor.graph.op import CONTROL_PORT, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device
from placement_advisor.simulator.arrays import UNKNOWN, GraphArrays, ScheduleArrays
from placement_advisor.simulator.memory import Constants, MemoryTracker, peaks
from placement_advisor.simulator.schedule import (
    MAX_CONTRIBUTORS,
    BufferUse,
    Contributor,
    PeakMemory,
    Transfer,
    shortages,
)

PLACES = ("a", "b", "host")


def peaks_of(ops, edges, *transfers, takes_ns=10, **device_of):
    """Return the peaks of a step whose ops run one after the other as given."""
    graph = OpGraph(ops, edges)
    arrays = GraphArrays(graph)
    named = [each.name for each in ops]
    start_ns = np.array([takes_ns * named.index(each.name) for each in arrays.ops])
    made = [arrays.ops[i].name for i in arrays.producer]
    tensors = list(zip(made, arrays.port.tolist(), strict=True))
    rows = [
        (
            tensors.index((each.producer, each.port)),
            *map(PLACES.index, (each.source, each.target)),
            *(each.start_ns, each.end_ns, each.receive_work_ns),
            UNKNOWN if each.size_bytes is None else each.size_bytes,
        )
        for each in transfers
    ]
    table = np.array(rows, np.int64).reshape(-1, 7)
    step = ScheduleArrays(
        step_ns=0,
        places=PLACES,
        op=np.arange(len(arrays.ops)),
        place=np.array([PLACES.index(device_of.get(each.name, "a")) for each in arrays.ops]),
        run_ns=np.column_stack([start_ns, start_ns + takes_ns]),
        arrays=arrays,
        copied=table[:, 0],
        source=table[:, 1],
        target=table[:, 2],
        copy_ns=table[:, 3:5],
        unpacked_ns=table[:, 5],
        copy_bytes=table[:, 6],
    )
    return peaks(step, graph, Constants(graph))


def peak_bytes(ops, edges, *transfers, **device_of):
    """Return the peaks of device a and device b."""
    found = peaks_of(ops, edges, *transfers, **device_of)
    return found["a"].size_bytes, found["b"].size_bytes


def copy(producer, size_bytes, start_ns, end_ns, *, receive_work_ns=0):
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


def variable(name, size_bytes):
    held = {"output_bytes": (None,), "parameter_bytes": size_bytes}
    return Op(name, "VarHandleOp", Role.VARIABLE, variable=name, **held)


def reading(name, size_bytes):
    return Op(name, "ReadVariableOp", variable="v", output_bytes=(size_bytes,))


def update(kind):
    return Op("update", kind, Role.UPDATE, variable="v")


def made(text):
    """Return edges, each `producer consumer size`, parted by commas; `loop:1` is of port 1."""
    found = []
    for each in text.split(", "):
        source, consumer, *size = each.split()
        producer, _, port = source.partition(":")
        found.append(edge(producer, consumer, int(size[0]) if size else None, port=int(port or 0)))
    return found


def loop(*sizes, trips):
    return Op("loop", "While", output_bytes=sizes, trips=trips)


def relu(name):
    return op(name, 100, kind="Relu")


def case(expected, ops, edges, *copies, **device_of):
    """Return the peaks of a and b that are expected, and what counts them."""
    return expected, partial(peak_bytes, ops, made(edges), *copies, **device_of)


X, Y30, Z50 = op("x", 100), op("y", 30), op("z", 50)
V, READ = variable("v", 1_000), reading("read", 1_000)
LOSS = "SparseSoftmaxCrossEntropyWithLogits"
LISTS = loop(3_000, 3_000, 30, trips=3)
SENT = [X, relu("y"), op("reader", 1)], "x y 100, y reader 100"
BACK = replace(copy("y", 100, 20, 20, receive_work_ns=5), source="b", target="a")
RECEIVED = [X, op("on_b", 70), op("pause", 1), op("reader", 30)], "x reader 100"
ON_B = {"on_b": "b", "reader": "b"}
SIGNAL = replace(copy("x", 0, 10, 10), port=CONTROL_PORT)
PEAKS = {
    # x is there until y has ended, so 100 + 30; then 30 + 50.
    "a chain holds two neighbours at a time": case((130, 0), [X, Y30, Z50], "x y 100, y z 30"),
    "a tensor lives until its last reader has ended": case(
        (100 + 30 + 50, 0), [X, Y30, Z50, op("w", 7)], "x y 100, y z 30, z w 50, x w 100"
    ),
    # y has a buffer of its own, which is free when z takes that of x.
    "an elementwise op leaves alone what others will read": case(
        (200, 0), [X, relu("y"), relu("z")], "x y 100, x z 100"
    ),
    "an elementwise op cannot write over an input of another size": case(
        (500, 0), [X, op("y", 400, kind="AddV2")], "x y 100"
    ),
    "a loss puts its gradient where its input lay": case(
        (108, 0),
        [op("logits", 100), op("loss", 8, 100, kind=LOSS), op("use", 1)],
        "logits loss 100, loss:1 use 100",
    ),
    # When z runs: x's buffer, held by flat; y; z.
    **{
        f"{kind} shares its input and keeps it alive": case(
            (100 + 30 + 50, 0),
            [X, op("shape", 8), op("flat", 100, kind=kind), Y30, Z50],
            "x flat 100, shape flat 8, flat y 100, y z 30, flat z 100",
        )
        for kind in ("Reshape", "Sum")
    },
    "a constant stands on each device that reads it": case(
        (38, 12),
        [op("c", 5, role=Role.CONSTANT), op("d", 3, role=Role.CONSTANT), op("x", 30), op("y", 7)],
        "c x 5, c y 5, d x 3",
        y="b",
    ),
    "a variable of which rows are gathered is read by copy": case(
        (1_000 + 1_000 + 30, 0),
        [V, Op("gather", "ResourceGather", variable="v", output_bytes=(20,)), READ, op("x", 30)],
        "v gather, v read, read x 1000",
    ),
    # When the old buffer is gone, "later" fits in its place.
    "an assigned value that others read is the variable": case(
        (2_000, 0),
        [V, op("value", 1_000), update("AssignVariableOp"), op("later", 600), op("last", 1)],
        "v update, value update 1000, value last 1000, later last 600",
    ),
    # On a, y runs while x is still leaving. On b, the copy is gone when on_b runs.
    "a copy engine holds a copy at both ends from its start to its end": case(
        (140, 130),
        [X, op("y", 40), op("last", 1), op("reader", 30), op("on_b", 70)],
        "x reader 100",
        copy("x", 100, 10, 30),
        **ON_B,
    ),
    # on_b runs from 10 to 20.
    "a copy takes memory as it comes": case((101, 170), *RECEIVED, copy("x", 100, 10, 25), **ON_B),
    "a copy that is unpacked takes memory when that begins": case(
        (101, 130), *RECEIVED, copy("x", 100, 10, 25, receive_work_ns=5), **ON_B
    ),
    "a tensor that is copied reuses a buffer": case(
        (100, 101), *SENT, copy("y", 100, 20, 20), reader="b"
    ),
    "a tensor that goes to another process does not": case(
        (200, 101), *SENT, copy("y", 100, 20, 20, receive_work_ns=5), reader="b"
    ),
    "a tensor from another process may be written over by what goes there": case(
        (101, 100), *SENT, copy("x", 100, 10, 10, receive_work_ns=5), BACK, y="b"
    ),
    "control signals take no memory": case((100, 30), [X, Y30], "x:-1 y", SIGNAL, y="b"),
    "tensors of unknown size are left out": case((40, 0), [op("x", None, 40), op("y", 2)], "x y"),
    "a copy of unknown size takes no memory that anybody knows": case(
        (0, 2), [op("x", None), op("y", 2)], "x y", copy("x", None, 10, 10), y="b"
    ),
    "results of a loop that nobody reads take no memory": case(
        (32, 0), [loop(100, 30, trips=None), op("y", 2)], "loop:1 y 30"
    ),
    # There is one variable of that size: the other list has contents of its own.
    "a list that holds a variable for each trip of a loop takes no memory": case(
        (1_000 + 3_000 + 2, 0), [V, LISTS, op("y", 2)], "v loop, loop y 3000, loop:1 y 3000"
    ),
    # What an op made may be another tensor in each trip, of which this one is the first.
    "nor does a list that holds the value of a variable": case(
        (1_000 + 1_000 + 3_000, 0),
        [V, op("read", 1_000, kind="ReadVariableOp"), op("z", 1_000), LISTS, op("y", 2)],
        "v read, read loop 1000, z loop 1000, loop y 3000, loop:1 y 3000",
    ),
    "after a single trip a result as large as a variable has a buffer of its own": case(
        (1_000 + 1_000 + 2, 0), [V, loop(1_000, trips=1), op("y", 2)], "v loop, loop y 1000"
    ),
    "ops of a host do not count for its device": case((30, 0), [X, Y30], "x y 100", x="host"),
}


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_are_those_counted_by_hand(name):
    expected, counted = PEAKS[name]
    assert counted() == expected


def test_an_op_without_duration_holds_its_inputs_and_outputs_side_by_side():
    assert peaks_of([X, Y30], made("x y 100"), takes_ns=0)["a"].size_bytes == 130


@pytest.mark.parametrize(
    ("kind", "more_bytes"), [("Relu", 0), ("AddV2", 0), ("Softmax", 0), ("MatMul", 100)]
)
def test_an_elementwise_op_writes_over_an_input_that_nobody_else_holds(kind, more_bytes):
    ops, edges = [X, op("y", 100, kind=kind), op("z", 7)], made("x y 100, y z 100")
    assert peak_bytes(ops, edges)[0] == max(100 + more_bytes, 100 + 7)


def test_variables_constants_and_inputs_stay_and_reading_a_variable_adds_nothing():
    ops = [V, op("c", 5, role=Role.CONSTANT), op("batch", 60, role=Role.INPUT)]
    ops += [READ, op("x", 30), op("y", 40)]
    edges = made("v read, read x 1000, c x 5, batch x 60, x y 30")
    peak = peaks_of(ops, edges)["a"]
    assert peak.size_bytes == 1_000 + 5 + 60 + 30 + 40
    assert peak.resident_bytes == 1_000 + 5 + 60


@pytest.mark.parametrize(
    ("kind", "late_bytes"),
    # A dense update copies what is read; then variable, value and what is read are three buffers.
    # An assignment takes the value's buffer: there are no more than two.
    [("AssignSubVariableOp", 3_000), ("ResourceApplyAdam", 3_000), ("AssignVariableOp", 2_010)],
)
def test_an_update_works_in_place_but_leaves_its_buffer_to_a_late_reader(kind, late_bytes):
    ops = [V, READ, op("gradient", 1_000), update(kind), op("last", 10)]
    edges = made("v read, v update, gradient update 1000, read gradient 1000")
    assert peak_bytes(ops, edges)[0] == 2_000
    assert peak_bytes(ops, [*edges, *made("read last 1000")])[0] == late_bytes


def test_the_peak_says_when_it_was_and_what_it_consisted_of():
    ops = [
        variable("v", 900),
        variable("slot", 800),
        reading("read", 900),
        op("x", 700),
        op("gradient", 600, role=Role.BACKWARD),
        Op("small", "MatMul", Role.UPDATE, output_bytes=(20,)),
        op("more", 10),
    ]
    edges = made("v read, slot small, x small 700, x more 700, gradient small 600, read more 900")
    peak = peaks_of(ops, [*edges, *made("small more 20")])["a"]
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


def test_of_two_peaks_of_one_height_the_first_is_told():
    memory = MemoryTracker()
    memory.release(memory.take("first", BufferUse.ACTIVATION, 10, now_ns=5))
    memory.take("second", BufferUse.ACTIVATION, 10, now_ns=7)
    peak = memory.peak()
    assert peak.at_ns == 5
    assert [each.name for each in peak.contributors] == ["first"]


def test_what_is_not_named_is_summed_by_what_it_is_held_for():
    ops = [op(f"x{i}", 100 + i) for i in range(8)]
    ops.append(op("all", 1))
    peak = peaks_of(ops, [edge(f"x{i}", "all", 100 + i) for i in range(8)])["a"]
    named = [each.name for each in peak.contributors]
    assert named == ["x7", "x6", "x5", "x4", "x3"]
    assert peak.rest_bytes == {BufferUse.ACTIVATION: 100 + 101 + 102 + 1}


def test_a_device_that_is_too_small_is_named_with_what_it_lacks_and_why():
    ops = [variable("v", 3_000_000_000), op("x", 500_000_000)]
    found = peaks_of(ops, [])
    small = Device(name="a", kind="GPU", memory_bytes=2_500_000_000)
    unknown = Device(name="b", kind="GPU")
    (shortage,) = shortages(found, [small, unknown])
    assert shortage.missing_bytes == 1_000_000_000
    assert str(shortage) == (
        "on a the step holds 3.50 GB at 10 ns, 1.00 GB more than the 2.50 GB there, "
        "most of it for v (variable, 3.00 GB), x (activation, 500 MB)"
    )
    assert not shortages(found, [Device(name="a", kind="GPU", memory_bytes=3_500_000_000)])


@given(placed_steps(hosts=True))
def test_a_peak_holds_at_least_its_largest_op_and_at_most_all_there_is(step):
    schedule = step.simulate()
    found = schedule.peak_memory
    largest = dict.fromkeys(step.cluster.place_names(), 0)
    for run in schedule.runs:
        each = step.graph.op(run.op)
        if each.kind == "MatMul" and each.role is not Role.VARIABLE:
            known = [size for size in each.output_bytes if size is not None]
            largest[run.device] = max([largest[run.device], *known])
    assert found.keys() == largest.keys()
    for device, peak in found.items():
        assert max(largest[device], peak.resident_bytes) <= peak.size_bytes
        assert peak.size_bytes <= found.at_most[device]
        named = sum(each.size_bytes for each in peak.contributors)
        assert named + sum(peak.rest_bytes.values()) == peak.size_bytes
        assert len(peak.contributors) <= MAX_CONTRIBUTORS
        assert peak.at_ns <= schedule.step_ns
