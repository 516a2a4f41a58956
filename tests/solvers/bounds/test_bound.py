"""No placement beats the bound, and the bound is the best that its arguments show."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from placed_steps import (
    HALF_EACH,
    PlacedStep,
    control,
    diamond,
    edge,
    op,
    pair,
    place,
    placed_steps,
    price,
    star,
)

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import CopyWork, Device, Dispatch
from placement_advisor.solvers.bound_arguments import (
    AllArgument,
    CutArgument,
    PathArgument,
    WorkArgument,
    argument_text,
)
from placement_advisor.solvers.lower_bounds import (
    MAX_PLACEMENTS,
    Step,
    bound_step,
    every_placement,
    longest_path,
    root_cut,
    shared_work,
    work_value_ns,
)

if TYPE_CHECKING:
    from placement_advisor.solvers.bound_arguments import Argument, LowerBound


def numbers(step: PlacedStep) -> Step:
    return Step(step.graph, step.all_costs(), step.cluster)


def bound(step: PlacedStep) -> LowerBound:
    return bound_step(step.graph, step.all_costs(), step.cluster, step.simulator())


def test_the_path_of_a_diamond_goes_through_its_longer_side() -> None:
    path = longest_path(numbers(diamond()))

    assert path == PathArgument(value_ns=50 + 100 + 20, ops=("src", "right", "sink"))


def test_the_work_of_a_diamond_is_shared_by_two_devices() -> None:
    work = shared_work(numbers(diamond()))

    assert work.value_ns == (50 + 80 + 100 + 20) / 2


def test_a_path_waits_until_a_device_has_begun() -> None:
    dispatch = Dispatch(step_overhead_ns=7, partition_overhead_ns=30, remote_start_ns=40)

    assert longest_path(numbers(diamond(dispatch=dispatch))).value_ns == 30 + 170
    assert bound(diamond(dispatch=dispatch)).split_ns >= 7 + 30 + 170


def test_one_device_alone_takes_the_sum_of_all_ops_and_what_it_takes_to_reach_it() -> None:
    dispatch = Dispatch(
        step_overhead_ns=7, partition_overhead_ns=30, remote_start_ns=40, remote_end_ns=5
    )

    assert bound(diamond(dispatch=dispatch)).alone_ns == {"a": 7 + 250, "b": 7 + 40 + 250 + 5}


def test_a_far_device_alone_takes_what_it_takes_to_reach_it_and_not_the_others() -> None:
    step = diamond(dispatch=Dispatch(remote_start_ns=40, remote_end_ns=5), count=3)
    first, near, far = step.cluster.devices
    far = replace(far, remote_start_ns=400, remote_end_ns=500)
    step = replace(step, cluster=replace(step.cluster, devices=(first, near, far)))

    alone_ns = bound(step).alone_ns
    assert alone_ns == {"a": 250, "b": 40 + 250 + 5, "c": 400 + 250 + 500}
    # A split may do without c, but then it takes the start and the end of b.
    assert work_value_ns(numbers(step), {"a": 0, "b": 0, "c": 1}) == 40 + 5


def test_an_op_that_costs_more_to_send_to_than_it_takes_stays_with_the_root() -> None:
    # Each of the five ops takes 8 ns; to leave the root's device costs that 9 ns of sending.
    step = star(5, op_ns=8, work=CopyWork(per_copy_ns=9))

    cut = root_cut(numbers(step))

    assert cut is not None
    assert (cut.value_ns, cut.root) == (10 + 5 * 8, "root")


def test_an_op_that_costs_less_to_send_to_leaves_the_root() -> None:
    # Now sending takes 3 of the 8 ns: at best all five leave.
    cut = root_cut(numbers(star(5, op_ns=8, work=CopyWork(per_copy_ns=3))))

    assert cut is not None
    assert cut.value_ns == 10 + 5 * 3


def test_one_tensor_is_sent_once_however_many_ops_read_it_there() -> None:
    names = [f"op{i}" for i in range(5)]
    step = PlacedStep(
        graph=OpGraph(
            [op("root", 4), *(op(name, 4) for name in names)],
            [edge("root", name, 4) for name in names],
        ),
        placement=place(dict.fromkeys(["root", *names], "a")),
        costs=price({"root": 100, **dict.fromkeys(names, 8)}),
        cluster=pair(work=CopyWork(per_copy_ns=9)),
    )

    cut = root_cut(numbers(step))

    assert cut is not None
    assert cut.value_ns == 100 + 9


def test_no_cut_is_drawn_where_engines_copy() -> None:
    assert root_cut(numbers(diamond())) is None


def test_uneven_devices_share_work_by_what_each_of_them_takes() -> None:
    # Three ops of 30 ns, 10 on b: at best b does two thirds … 30 x = 10 (3 - x), so x = 0.75.
    names = ["one", "two", "three"]
    slow, fast = price(dict.fromkeys(names, 30)), price(dict.fromkeys(names, 10))
    step = PlacedStep(
        graph=OpGraph([op(name, 4) for name in names], []),
        placement=place(dict.fromkeys(names, "a")),
        costs=slow,
        costs_on={"b": fast},
        cluster=pair(),
    )

    assert shared_work(numbers(step)).value_ns == pytest.approx(22.5, abs=0.6)


def test_a_host_shares_work_at_its_own_pace() -> None:
    # In 14.3 ns each device does 1/2.1 of the op's 30 ns, and the host, ten times slower, the rest.
    cluster = replace(
        pair(),
        devices=tuple(Device(name=name, kind="GPU", host="x") for name in "ab"),
        hosts=(Device(name="x", kind="CPU"),),
    )
    step = PlacedStep(
        graph=OpGraph([op("one", 4)._replace(device_kinds=frozenset({"CPU", "GPU"}))], []),
        placement=place({"one": "a"}),
        costs=price({"one": 30}),
        costs_on={"x": price({"one": 300})},
        cluster=cluster,
    )

    assert work_value_ns(numbers(step), {"a": 10, "b": 10, "x": 1}) == 15
    assert shared_work(numbers(step)).value_ns == 15


def test_a_small_step_is_bounded_by_its_best_placement() -> None:
    step = diamond()
    names = [each.name for each in step.graph.ops]
    splits = [
        step.simulator().step_ns(place(dict(zip(names, chosen, strict=True))))
        for chosen in product("ab", repeat=4)
        if len(set(chosen)) == 2
    ]

    found = bound(step)

    assert found.split_ns == min(splits)
    assert found.arguments[0] == AllArgument(value_ns=min(splits), placements=14)


def test_a_device_that_sends_to_the_end_of_a_step_is_not_waited_for_as_well() -> None:
    dispatch = Dispatch(partition_overhead_ns=100, remote_start_ns=10, remote_end_ns=50)
    step = PlacedStep(
        graph=OpGraph([op("root", 4), op("reader", 4)], [edge("root", "reader", 4)]),
        placement=place({"root": "b", "reader": "a"}),
        costs=price({"root": 1_000, "reader": 20}),
        cluster=pair(latency_ns=0, work=CopyWork(per_copy_ns=20), dispatch=dispatch),
    )

    # b starts the root after 10 ns, its end is known 50 ns after it; by then a has ended as well.
    assert step.simulate().step_ns == 10 + 1_000 + 50
    cut = root_cut(numbers(step))
    assert cut is not None
    assert cut.value_ns == 10 + 1_000 + 20
    assert bound(step).split_ns == 10 + 1_000 + 50


def test_a_split_over_a_device_and_its_host_may_start_no_further_device() -> None:
    dispatch = Dispatch(partition_overhead_ns=60, remote_start_ns=150, remote_end_ns=70)
    cluster = pair(work=CopyWork(per_copy_ns=5), dispatch=dispatch)
    first, second = cluster.devices
    step = PlacedStep(
        graph=OpGraph([op("one", 4), op("two", 4)], [edge("one", "two", 4)]),
        placement=place({"one": "a", "two": "b"}),
        costs=price({"one": 10, "two": 30}),
        cluster=replace(cluster, devices=(first, replace(second, kind="GPU", host="a"))),
    )

    # Neither op has a kernel for a GPU: both run on a.
    assert step.simulate().step_ns == 10 + 30
    assert bound(step).split_ns == 10 + 30
    assert [each.value_ns for each in bound(step).arguments] == [40, 40, 40]


def test_all_placements_on_devices_and_hosts_are_tried() -> None:
    cluster = pair(count=3)
    first, second, host = cluster.devices
    step = replace(diamond(), cluster=replace(cluster, devices=(first, second), hosts=(host,)))

    assert bound(step).arguments[0] == AllArgument(value_ns=280, placements=3**4 - 3)


def test_a_step_with_too_many_placements_is_not_tried_in_full() -> None:
    step = star(15, op_ns=1, work=HALF_EACH)

    assert len(step.graph) == 16
    assert MAX_PLACEMENTS < 2**16
    assert every_placement(numbers(step), step.simulator()) is None


def test_the_strongest_argument_comes_first() -> None:
    values = [each.value_ns for each in bound(diamond()).arguments]

    assert values == sorted(values, reverse=True)


def test_a_control_edge_is_on_the_path_and_is_sent() -> None:
    graph = OpGraph([op("first", 4), op("second", 4)], [control("first", "second")])
    step = PlacedStep(
        graph=graph,
        placement=place({"first": "a", "second": "a"}),
        costs=price({"first": 30, "second": 40}),
        cluster=pair(work=CopyWork(per_copy_ns=100)),
    )

    cut = root_cut(numbers(step))

    assert longest_path(numbers(step)).value_ns == 70
    assert cut is not None
    assert cut.value_ns == 70


def test_a_step_without_ops_has_a_bound() -> None:
    empty = PlacedStep(graph=OpGraph([], []), placement=place({}), costs=price({}), cluster=pair())

    assert bound(empty).step_ns == 0


@given(st.booleans().flatmap(lambda hosts: placed_steps(hosts=hosts)))
def test_no_placement_of_a_larger_step_beats_what_an_argument_says(step: PlacedStep) -> None:
    found = bound(step)
    step_ns = step.simulate().step_ns
    used = set(step.placement.device_of.values())

    assume(used)
    if len(used) == 1:
        assert found.alone_ns[used.pop()] <= step_ns
    else:
        assert found.split_ns <= step_ns
        for argument in found.arguments:
            assert argument.value_ns + step.cluster.dispatch.step_overhead_ns <= step_ns
    assert found.step_ns <= step_ns


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (PathArgument(value_ns=170, ops=("a", "b")), "critical path: 2 ops need one another"),
        (WorkArgument(value_ns=170, weights={"a": 1}), "work: all ops, shared out evenly"),
        (CutArgument(value_ns=170, root="a", flow={}), "copies: the device that holds a is busy"),
        (AllArgument(value_ns=170, placements=1_234), "all 1,234 placements were simulated"),
    ],
)
def test_an_argument_is_told_in_words(argument: Argument, words: str) -> None:
    text = argument_text(argument)

    assert text.startswith(words)
    assert "170 ns" in text
