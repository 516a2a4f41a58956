"""A bound is confirmed without what found it, and refused as soon as it says too much."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from certified import Certified, certified, verify
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import (
    HALF_EACH,
    PlacedStep,
    clock,
    diamond,
    op,
    pair,
    place,
    placed_steps,
    price,
)

from placement_advisor.graph.op import CONTROL_PORT, Edge
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import CopyWork
from placement_advisor.solvers.bound_arguments import (
    AllArgument,
    CutArgument,
    PathArgument,
    WorkArgument,
)
from placement_advisor.solvers.bound_check import RefusedError

if TYPE_CHECKING:
    from placement_advisor.solvers.bound_arguments import Argument


def with_argument(told: Certified, **changes: Any) -> Certified:
    """Return the bound with its strongest argument changed."""
    first, *others = told.bound.arguments
    arguments: tuple[Argument, ...] = (replace(first, **changes), *others)
    return replace(told, bound=replace(told.bound, arguments=arguments))


def test_the_strongest_argument_of_each_kind_is_confirmed() -> None:
    # 20 readers are too many to try all placements; the root keeps its device busy for all of them.
    told = certified(clock())

    assert isinstance(told.bound.arguments[0], CutArgument)
    assert {type(each) for each in told.bound.arguments} == {
        CutArgument,
        WorkArgument,
        PathArgument,
    }
    assert told.bound.split_ns == 10 + 20 * 6
    verify(told, clock().graph)


def test_all_placements_are_simulated_again() -> None:
    told = certified(diamond())

    assert isinstance(told.bound.arguments[0], AllArgument)
    verify(told, diamond().graph)
    with pytest.raises(RefusedError, match="all placements: it shows 280 ns, not 281"):
        verify(with_argument(told, value_ns=281), diamond().graph)


def test_a_claim_that_no_argument_shows_is_refused() -> None:
    told = certified(clock())
    claim = replace(told.bound, split_ns=told.bound.split_ns + 1)

    with pytest.raises(RefusedError, match="several devices: no argument shows 131 ns"):
        verify(replace(told, bound=claim), clock().graph)


def test_a_claim_without_any_argument_is_that_of_an_empty_step() -> None:
    told = certified(clock())
    overhead_ns = clock().cluster.dispatch.step_overhead_ns

    def claimed(split_ns: int) -> Certified:
        claim = replace(told.bound, split_ns=split_ns, arguments=())
        return replace(told, bound=claim)

    verify(claimed(overhead_ns), clock().graph)
    with pytest.raises(RefusedError, match="several devices: no argument shows"):
        verify(claimed(overhead_ns + 1), clock().graph)


def test_a_claim_for_one_device_that_is_too_high_is_refused() -> None:
    told = certified(clock())
    claim = replace(told.bound, alone_ns={"a": 130, "b": 131})

    with pytest.raises(RefusedError, match="all ops on b take 130 ns at least, not 131"):
        verify(replace(told, bound=claim), clock().graph)


@pytest.mark.parametrize("alone_ns", [{"a": 130}, {"a": 130, "b": 130, "c": 0}])
def test_claims_for_other_devices_than_those_of_the_cluster_are_refused(
    alone_ns: dict[str, int],
) -> None:
    told = certified(clock())
    claim = replace(told.bound, alone_ns=alone_ns)

    with pytest.raises(RefusedError, match="are not for the devices of its cluster"):
        verify(replace(told, bound=claim), clock().graph)


def test_a_certificate_without_op_times_for_a_device_is_refused() -> None:
    told = certified(clock())

    with pytest.raises(RefusedError, match="it has no op times for 'b'"):
        verify(replace(told, costs={"a": told.costs["a"]}), clock().graph)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value_ns": 131}, "cut: it shows 130 ns, not 131"),
        ({"root": "op3"}, "cut: into 'op root' flow 0 ns"),
        ({"flow": {("op root", "op op1"): 5}}, "nothing can flow from 'op root' to 'op op1'"),
        ({"flow": {("op op1", "sink"): 7}}, "there is work for 6 ns"),
    ],
)
def test_a_flow_that_shows_too_much_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        verify(with_argument(certified(clock()), **change), clock().graph)


def test_a_path_of_ops_that_do_not_need_one_another_is_refused() -> None:
    told = certified(diamond())
    wrong = PathArgument(value_ns=0, ops=("left", "right"))

    with pytest.raises(RefusedError, match="'right' does not need 'left'"):
        verify(replace(told, bound=replace(told.bound, arguments=(wrong,))), diamond().graph)


def test_a_path_of_an_op_that_is_not_there_is_refused() -> None:
    told = certified(diamond())
    wrong = PathArgument(value_ns=0, ops=("middle",))

    with pytest.raises(RefusedError, match="there is no op 'middle' that takes time"):
        verify(replace(told, bound=replace(told.bound, arguments=(wrong,))), diamond().graph)


def test_weights_that_leave_a_device_out_are_refused() -> None:
    told = certified(diamond())
    wrong = WorkArgument(value_ns=0, weights={"a": 1})

    with pytest.raises(RefusedError, match="not those of the devices"):
        verify(replace(told, bound=replace(told.bound, arguments=(wrong,))), diamond().graph)


@pytest.mark.parametrize(
    "argument",
    [
        AllArgument(value_ns=200, placements=2),
        CutArgument(value_ns=200, root="free", flow={("op free", "sink"): 200}),
    ],
)
def test_a_variable_that_is_named_like_an_op_does_not_hold_that_op(argument: Argument) -> None:
    # No more than "held" has to be where the variable is, so that "free" can run beside it.
    held = op("held", 4)._replace(variable="\0free")
    step = PlacedStep(
        graph=OpGraph([op("free", 4), held, op("other", 4)], []),
        placement=place({"free": "a", "held": "b", "other": "a"}),
        costs=price({"free": 100, "held": 100, "other": 0}),
        cluster=pair(work=HALF_EACH),
    )
    told = certified(step)
    false = replace(told.bound, split_ns=200, arguments=(argument,))

    assert step.simulate().step_ns == told.bound.split_ns == 100
    with pytest.raises(RefusedError, match=r"it shows 100 ns, not 200|there is work for 100 ns"):
        verify(replace(told, bound=false), step.graph)


def test_a_control_edge_counts_as_no_bytes_whatever_size_a_graph_gives_it() -> None:
    graph = OpGraph(
        [op("root", 4), op("op0", 4), op("op1", 4)],
        [Edge("root", name, CONTROL_PORT, 4_000) for name in ("op0", "op1")],
    )
    costs = price({"root": 10, "op0": 1_000, "op1": 1_000})
    step = replace(clock(2), graph=graph, costs=costs)
    told = certified(step)
    cuts = [each for each in told.bound.arguments if isinstance(each, CutArgument)]

    # A signal is work for 5 ns at either end: who runs op0 receives it, or runs all else as well.
    assert [cut.value_ns for cut in cuts] == [1_000 + 5]
    verify(told, graph)
    flow = {
        ("op root", "sent root:-1"): 6,
        ("sent root:-1", "op op0"): 6,
        ("op op0", "sink"): 6,
    }
    false = (CutArgument(value_ns=6, root="root", flow=flow),)
    with pytest.raises(RefusedError, match=r"6 ns flow .* there is work for 5 ns"):
        verify(replace(told, bound=replace(told.bound, arguments=false)), graph)


@pytest.mark.parametrize(
    ("end", "root", "arcs"),
    [
        ("sender", "root", [("op root", "sent root:0"), ("sent root:0", "op op0")]),
        ("receiver", "op0", [("op op0", "received root:0"), ("received root:0", "op root")]),
    ],
)
def test_work_of_copies_counts_as_on_the_link_where_it_is_least(
    end: str, root: str, arcs: list[tuple[str, str]]
) -> None:
    step = clock(2)
    first, *others = step.cluster.links
    dearer = replace(first, **{end: CopyWork(per_copy_ns=50)})
    uneven = replace(step, cluster=replace(step.cluster, links=(dearer, *others)))
    told = certified(uneven)
    verify(told, uneven.graph)

    flow = dict.fromkeys([*arcs, (arcs[-1][1], "sink")], 8)
    false = (CutArgument(value_ns=8, root=root, flow=flow),)
    with pytest.raises(RefusedError, match=r"8 ns flow .* there is work for 7 ns"):
        verify(replace(told, bound=replace(told.bound, arguments=false)), uneven.graph)


def test_ops_of_unknown_cost_cannot_have_been_simulated() -> None:
    told = certified(diamond())
    lacking = {name: price({"src": 50, "left": 80, "right": 100}) for name in "ab"}
    false = replace(told, costs=lacking, bound=replace(told.bound, alone_ns={"a": 0, "b": 0}))

    with pytest.raises(RefusedError, match=r"all placements: op 'sink' \(MatMul\) has no cost"):
        verify(false, diamond().graph)


def test_a_cut_says_nothing_where_ops_may_run_on_hosts() -> None:
    told = certified(clock())
    first, second = told.cluster.devices
    flow = {("op root", "sink"): 10}
    cut = CutArgument(value_ns=10, root="root", flow=flow)
    claim = replace(told.bound, alone_ns={"a": 0, "b": 0}, arguments=(cut,), split_ns=10)
    hosted = replace(told.cluster, devices=(first, replace(second, kind="GPU", host="a")))

    verify(replace(told, bound=claim), clock().graph)
    with pytest.raises(RefusedError, match="cut: it does not hold where there are hosts"):
        verify(replace(told, bound=claim, cluster=hosted), clock().graph)


def test_a_cut_of_a_step_on_one_device_shows_its_work_and_no_copies() -> None:
    step = clock()
    alone = replace(step, cluster=pair(work=HALF_EACH, count=1))
    told = certified(alone)
    sent = {("op root", "sent root:0"): 1, ("sent root:0", "op op0"): 1, ("op op0", "sink"): 1}
    received = {
        ("op op0", "received root:0"): 1,
        ("received root:0", "op root"): 1,
        ("op root", "sink"): 1,
    }
    for root, arcs in (("op0", {("op op0", "sink"): 6}), ("root", sent), ("op0", received)):
        cut = CutArgument(value_ns=7, root=root, flow=arcs)
        claim = replace(told.bound, arguments=(cut,), split_ns=7)
        with pytest.raises(RefusedError, match=r"it shows 6 ns, not 7|there is work for 0 ns"):
            verify(replace(told, bound=claim), alone.graph)


def test_more_placements_than_can_be_tried_are_not_tried() -> None:
    told = certified(clock())
    every = AllArgument(value_ns=1, placements=2**21)

    with pytest.raises(RefusedError, match="there are too many to have been simulated"):
        verify(replace(told, bound=replace(told.bound, arguments=(every,))), clock().graph)


def test_a_graph_without_ops_takes_no_time_and_no_more_is_confirmed() -> None:
    empty = PlacedStep(graph=OpGraph([], []), placement=place({}), costs=price({}), cluster=pair())
    told = certified(empty)

    verify(told, empty.graph)
    for argument in told.bound.arguments:
        false = replace(told.bound, arguments=(replace(argument, value_ns=1),))
        with pytest.raises(RefusedError, match="it shows 0 ns, not 1"):
            verify(replace(told, bound=false), empty.graph)


@cases(30)
@given(placed_steps(max_ops=7, hosts=True))
def test_what_was_found_is_confirmed_and_nothing_beyond_it(step: PlacedStep) -> None:
    told = certified(step)
    verify(told, step.graph)

    assume(told.bound.arguments)
    for number, argument in enumerate(told.bound.arguments):
        arguments = list(told.bound.arguments)
        arguments[number] = replace(argument, value_ns=argument.value_ns + 1)
        with pytest.raises(RefusedError):
            verify(replace(told, bound=replace(told.bound, arguments=tuple(arguments))), step.graph)
