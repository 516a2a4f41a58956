from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import graph_of, sized
from placed_steps import price
from step_graphs import calls_of, cluster_of, proposed, training_step

from placement_advisor.candidates import parameters_on_host
from placement_advisor.candidates.on_host import propose_loops, propose_tail
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.op import Edge, Inside, Op, Role
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Device

HOST = Device(name="CPU:0", kind="CPU")
GPU = Device(name="GPU:0", kind="GPU", host="CPU:0")
BOTH = frozenset({"CPU", "GPU"})
# What each op takes on the GPU and on its host; a copy takes 10 and 1 for each byte.
TIMES_NS = {
    "convolve": (100, 900),
    "flat": (5, 6),
    "list": (1, 1),
    "fill": (1, 1),
    "loop": (400, 60),
    "size": (3, 1),
    "gather": (1, 1),
    "end": (7, 1),
}


def detector(loop="While"):
    """A convolution, and a loop that fills a list with what it finds; ``size`` reads the list."""
    graph = graph_of(
        "image Placeholder input; weights Const constant; "
        "convolve Conv2D - network < image weights; flat Reshape - network < convolve; "
        "list TensorArrayV3 - boxes boxes/list; "
        "fill TensorArrayScatterV3 - boxes boxes/list < flat list; "
        f"loop {loop} - boxes boxes/list < fill; size Range - boxes < loop; "
        "gather TensorArrayGatherV3 - boxes boxes/list < size loop; end Identity - boxes < gather"
    )
    size = {"image": 50, "weights": 1_000, "convolve": 40, "flat": 20}
    ops = [op._replace(output_bytes=(size.get(op.name, 4),)) for op in graph.ops]
    ops = [op._replace(device_kinds=BOTH) if op.layer else op for op in ops]
    return sized(ops, graph.edges)


def on_gpu(propose, graph, times_ns=TIMES_NS):
    cluster = cluster_of(GPU, hosts=[HOST])
    costs = {
        place: price({name: time_ns[i] for name, time_ns in times_ns.items()})
        for i, place in enumerate(("GPU:0", "CPU:0"))
    }
    found = propose(graph, costs, cluster)
    if isinstance(found, Placement):
        found.check(graph, cluster.place_names())
    return found


def moved(found, host="CPU:0"):
    device_of = found.device_of if isinstance(found, Placement) else {}
    return {name for name, device in device_of.items() if device == host}


LISTED = {"list", "fill", "loop", "size", "gather"}


def test_the_end_of_the_step_goes_to_the_host_by_hand():
    found = on_gpu(propose_tail, detector())
    assert moved(found) == LISTED | {"end"}
    # On the GPU 1 + 1 + 400 + 3 + 1 + 7, on the host 1 + 1 + 60 + 1 + 1 + 1, and 20 bytes cross.
    assert found.rationale == (
        "6 ops (boxes) on CPU:0: 318 ns less for ops and copies; the rest on GPU:0"
    )


def test_an_end_takes_along_what_makes_less_cross():
    dear = {**TIMES_NS, "flat": (5, 200)}
    assert "flat" not in moved(on_gpu(propose_tail, detector(), dear))
    large = replaced(detector(), "flat", output_bytes=(400,))
    # 400 bytes after it, 40 before it.
    assert moved(on_gpu(propose_tail, large)) == LISTED | {"end", "flat"}


def replaced(graph, name, **facts):
    return sized([op._replace(**facts) if op.name == name else op for op in graph.ops], graph.edges)


def test_an_end_that_saves_less_than_its_copies_take_stays():
    # On the GPU 95 in all, on the host 65, and 20 bytes cross.
    slow = {**TIMES_NS, "loop": (82, 60)}
    found = on_gpu(propose_tail, detector(), slow)
    assert found.family == "tail-on-host"
    assert found.reason == "nothing of it takes less time on CPU:0"
    assert moved(on_gpu(propose_tail, detector(), {**TIMES_NS, "loop": (83, 60)}))


def test_of_ends_that_save_nearly_as_much_the_shorter_one_goes():
    sooner = {**TIMES_NS, "flat": (30, 6)}
    # With it 318 + 24 less 40 in place of 20 bytes, 322: not worth another op.
    assert moved(on_gpu(propose_tail, detector(), sooner)) == LISTED | {"end"}
    much_sooner = {**TIMES_NS, "flat": (130, 6)}
    assert moved(on_gpu(propose_tail, detector(), much_sooner)) == LISTED | {"end", "flat"}


def test_ops_of_a_list_stay_together_though_its_last_one_alone_would_gain():
    one = {**TIMES_NS, "loop": (60, 400), "gather": (200, 1)}
    # Alone it would save 199 of ops, for 14 of copies; all of them together lose.
    apart = replaced(detector(), "gather", variable=None)
    assert "gather" in moved(on_gpu(propose_tail, apart, one))
    assert "gather" not in moved(on_gpu(propose_tail, detector(), one))


def test_a_loop_goes_to_the_host_with_its_list_and_what_stands_between_if_it_is_sooner_there():
    found = on_gpu(propose_loops, detector())
    assert moved(found) == LISTED
    assert found.rationale == (
        # 1 + 1 + 400 + 3 + 1 less 1 + 1 + 60 + 1 + 1; 20 bytes cross there and 4 back.
        "5 ops (boxes) on CPU:0: 298 ns less for ops and copies; the rest on GPU:0"
    )
    found = on_gpu(propose_loops, detector(), {**TIMES_NS, "loop": (60, 60)})
    assert found.reason == "nothing of it takes less time on CPU:0"


def test_what_the_host_runs_in_any_case_takes_its_neighbours_along():
    bound = replaced(detector(), "end", device_kinds=frozenset({"CPU"}))
    level = {**TIMES_NS, "loop": (60, 60), "gather": (1, 1)}
    # 4 bytes to the end cross if the list stays, 20 if it goes: 14 less 30.
    assert moved(on_gpu(propose_loops, bound, level)) == set()
    small = replaced(bound, "flat", output_bytes=(2,))
    assert moved(on_gpu(propose_loops, small, level)) == LISTED


def test_steps_that_train_have_no_tail_and_steps_without_loops_none_to_move():
    update = Op(name="update", kind="AssignVariableOp", role=Role.UPDATE, variable="w")
    trained = sized([*detector().ops, update], detector().edges)
    assert on_gpu(propose_tail, trained).reason == "the step ends in updates of variables"
    assert moved(on_gpu(propose_loops, trained, {**TIMES_NS, "update": (1, 1)})) == LISTED
    assert on_gpu(propose_loops, detector(loop="Sort")).reason == "the step has no loop"


@pytest.mark.parametrize("propose", [propose_tail, propose_loops])
def test_a_worker_stands_for_the_host_of_a_gpu_that_is_not_there(propose):
    costs, workers = CostTable(costs={}), ("worker:0", "worker:1")
    heavy = replaced(detector(), "convolve", flops=10**12)
    busy = replaced(heavy, "loop", inside=Inside(ops=9, copies=900, copied_bytes=0), trips=1)
    found = proposed(propose, busy, costs, *workers)
    assert moved(found, "worker:1") >= LISTED
    assert set(found.device_of.values()) == {"worker:0", "worker:1"}
    assert "on worker:1, for want of a host, as if worker:0 were a V100: " in found.rationale
    calm = replaced(busy, "loop", inside=Inside(ops=9, copies=0, copied_bytes=0))
    assert not isinstance(proposed(propose, calm, costs, *workers), Placement)


@pytest.mark.parametrize("propose", [propose_tail, propose_loops])
def test_one_device_without_a_host_has_nowhere_to_move_to(propose):
    found = proposed(propose, detector(), CostTable(costs={}), "d0")
    assert found.reason == "d0 has no host, and no other device"


def test_copies_that_go_side_by_side_are_no_gain():
    """Four inputs are summed up on the GPU: one after the other their copies take 4 times 10."""
    inputs = [f"input{i}" for i in range(4)]
    ops = [Op(name=n, kind="Placeholder", role=Role.INPUT, output_bytes=(0,)) for n in inputs]
    ops.append(Op(name="sum", kind="AddN", device_kinds=BOTH, output_bytes=(0,)))
    edges = [Edge(producer=name, consumer="sum", port=0) for name in inputs]
    found = on_gpu(propose_tail, sized(ops, edges), {"sum": (5, 20)})
    assert found.reason == "sum on CPU:0 would save nothing of the simulated step"
    assert moved(on_gpu(propose_tail, sized(ops, edges), {"sum": (5, 14)})) == {"sum"}


@st.composite
def _steps(draw):
    count = draw(st.integers(2, 9))
    names = [f"op{i}" for i in range(count)]
    kinds = st.sampled_from([BOTH, BOTH, frozenset({"CPU"})])
    ops = [
        Op(
            name=name,
            kind=draw(st.sampled_from(["While", "Relu"])),
            device_kinds=draw(kinds),
            variable=draw(st.sampled_from([None, None, "list"])),
            output_bytes=(draw(st.integers(0, 99)),),
        )
        for name in names
    ]
    edges = [
        Edge(producer=names[i], consumer=names[j], port=draw(st.sampled_from([0, -1])))
        for j in range(1, count)
        for i in draw(st.sets(st.integers(0, j - 1), max_size=3))
    ]
    time_ns = st.tuples(st.integers(0, 200), st.integers(0, 200))
    edges = [e if not e.is_control else e._replace(size_bytes=None) for e in edges]
    return sized(ops, edges), {name: draw(time_ns) for name in names}


def total_ns(graph, times_ns, there):
    """What ops and copies take, counted from scratch."""
    there = there | graph.host_bound("GPU")
    crossing = {
        (e.producer, e.port): e.size_bytes or 0
        for e in graph.edges
        if (e.producer in there) != (e.consumer in there)
    }
    ops_ns = sum(times_ns[op.name][op.name in there] for op in graph.placed_ops)
    return ops_ns + sum(10 + size for size in crossing.values())


@given(_steps())
def test_what_is_moved_saves_what_is_said_and_a_tail_is_an_end(step):
    graph, times_ns = step
    for propose in (propose_tail, propose_loops):
        found = on_gpu(propose, graph, times_ns)
        if not isinstance(found, Placement):
            continue
        there = moved(found)
        saved = total_ns(graph, times_ns, set()) - total_ns(graph, times_ns, there)
        assert saved > 0
        assert f": {saved} ns less" in found.rationale
        if propose is propose_tail:
            bound = graph.host_bound("GPU")
            readers = {e.consumer for e in graph.edges if e.producer in there}
            assert readers <= there | bound


def lookup_step(*, table_bytes=1_000, rows_bytes=40, reader="GatherV2", more="", **reads):
    """Ids, rows of a table, a dense layer; the table's gradient is summed up, then subtracted.

    ``more`` are further ops, as `graph_of` reads them; ``reads`` what an op reads instead.
    """
    reads = {"dense": "rows read_w", "update": "sum words"} | reads
    graph = graph_of(
        "ids Placeholder input; words VarHandleOp variable embed words; "
        "words/m VarHandleOp variable embed words/m; read ReadVariableOp - embed words < words; "
        f"rows {reader} - embed < read ids; w VarHandleOp variable - w; "
        f"read_w ReadVariableOp - dense w < w; dense MatMul - dense < {reads['dense']}; "
        "grad MatMul backward dense < dense; sum UnsortedSegmentSum backward embed < grad ids; "
        "keep AssignVariableOp update embed words/m < sum words/m; "
        f"update AssignSubVariableOp update embed words < {reads['update']}{more}"
    )
    held = {"words": table_bytes, "words/m": table_bytes, "w": 16}
    size = {"ids": 8, "read": table_bytes, "rows": rows_bytes, "read_w": 16, "dense": 4}
    size |= {"grad": 40, "sum": table_bytes, "gather": 40, "scaled": 40, "decay": 1_000}
    ops = [
        op._replace(output_bytes=(size.get(op.name, 0),), parameter_bytes=held.get(op.name, 0))
        for op in graph.ops
    ]
    return sized(ops, graph.edges)


def beside(graph, *devices, hosts=()):
    """Return what is proposed for the tables of a step whose ops have no costs."""
    return proposed(parameters_on_host.propose, graph, CostTable(costs={}), *devices, hosts=hosts)


def beside_host(graph):
    return beside(graph, GPU, hosts=[HOST])


def test_a_table_its_slot_and_all_that_is_as_large_stand_on_the_host():
    found = beside_host(lookup_step())
    there = moved(found)
    assert there >= {"words", "words/m", "read", "rows", "sum", "keep", "update"}
    assert there.isdisjoint({"w", "read_w", "dense", "grad"})
    assert found.rationale == (
        "1 table (words) on CPU:0: 2.00 kB with optimizer slots, of which a step looks up 40 B; "
        "the rest on GPU:0"
    )


def test_without_a_host_the_second_device_takes_its_part_and_of_several_it_is_the_first():
    found = beside(lookup_step(), "d0", "d1", "d2")
    assert found.device_of["words"] == "d1"
    assert set(found.device_of.values()) == {"d0", "d1"}
    assert found.rationale.startswith("1 table (words) on d1, for want of a host: 2.00 kB")
    assert beside(lookup_step(), "d0").reason == "d0 has no host, and no other device"
    other = replace(GPU, name="GPU:1", host="CPU:1")
    found = beside(lookup_step(), GPU, other, hosts=[replace(HOST, name="CPU:1"), HOST])
    assert set(found.device_of.values()) == {"GPU:0", "CPU:0"}


def test_a_table_of_which_as_much_is_looked_up_stays_and_unknown_sizes_count_nothing():
    assert beside_host(lookup_step(table_bytes=40)).reason == (
        "no embedding table holds more than a step looks up in it: words has 40 B, "
        "a step looks up 40 B"
    )
    assert isinstance(beside_host(lookup_step(table_bytes=41)), Placement)
    assert isinstance(beside_host(lookup_step(rows_bytes=None)), Placement)
    graph, _ = training_step(calls_of("a < in:x w=80"))
    assert beside_host(graph).reason == NONE


NONE = "the step has no embedding table: no variable of which it only looks up rows"


@pytest.mark.parametrize("kind", ["MatMul", "Square", "Transpose"])
def test_a_variable_that_some_op_reads_as_a_whole_is_no_table(kind):
    graph = lookup_step(more=f"; tied {kind} - out < read")
    assert beside_host(graph).reason == NONE


def test_a_table_is_what_is_only_looked_up_also_through_an_identity_or_with_its_shape_read():
    assert beside_host(lookup_step(reader="Identity")).reason == NONE
    gather = "; gather GatherV2 - embed < rows"
    through = lookup_step(reader="Identity", more=gather, dense="read_w")
    assert beside_host(through).device_of["words"] == "CPU:0"
    own = replaced(lookup_step(), "read", kind="ResourceGather", output_bytes=(40,))
    assert beside_host(own).device_of["words"] == "CPU:0"
    shape_and_decay = "; shape Shape - embed < read; decay Mul update < read"
    graph = lookup_step(more=shape_and_decay, update="sum words decay")
    assert beside_host(graph).device_of["decay"] == "CPU:0"


def test_gradients_of_rows_and_sums_of_others_stay_on_the_device():
    scaled = "; scaled Mul backward dense < grad"
    found = beside_host(lookup_step(more=scaled, update="sum words scaled"))
    assert found.device_of["update"] == "CPU:0"
    assert found.device_of["scaled"] == "GPU:0"
    graph = replaced(lookup_step(), "sum", variable="w")
    assert beside_host(graph).device_of["sum"] == "GPU:0"
