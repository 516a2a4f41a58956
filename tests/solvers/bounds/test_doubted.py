"""A bound under costs as wrong as they may be is below every placement, and equal without doubt."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import PlacedStep, clock, edge, op, pair, place, placed_steps, price

from placement_advisor.errors import PlacementError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import placed_ops
from placement_advisor.machine.devices import Device
from placement_advisor.simulator.sensitivity import CostUncertainty, Sensitivity
from placement_advisor.solvers.lower_bounds import least_ratio_if_wrong

if TYPE_CHECKING:
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster


def sensitivity(step: PlacedStep, doubt: CostUncertainty) -> Sensitivity:
    return Sensitivity(step.simulator(), step.on_one_device().placement, doubt)


def least(step: PlacedStep, **doubt: float) -> float:
    wrong = CostUncertainty(**{"copies": 1.0, "launches": 1.0, "ops": 1.0} | doubt)
    return least_ratio_if_wrong(step.graph, step.all_costs(), sensitivity(step, wrong))


def test_a_proof_by_copies_holds_as_long_as_they_cost_more_than_the_op_by_hand() -> None:
    assert least(clock()) == 1.0
    assert least(clock(), copies=1.1) == 1.0
    # In whole ns, 5 / 2 + 2 / 2 = 3: each of 20 readers that leaves saves 3 of 130 ns.
    assert least(clock(), copies=2.0) == pytest.approx((10 + 20 * 3) / 130)


def chain(cluster: Cluster) -> PlacedStep:
    """Return two ops of 100 ns, one after the other, for which no split is of use."""
    return PlacedStep(
        graph=OpGraph([op("one", 4), op("two", 4)], [edge("one", "two", 4)]),
        placement=place({"one": "a", "two": "a"}),
        costs=price({"one": 100, "two": 100}),
        cluster=cluster,
    )


def test_what_the_ops_of_a_split_may_take_less_comes_off_by_hand() -> None:
    # No placement is faster, but for ops that take less elsewhere.
    step = chain(pair(latency_ns=1))
    # With its one copy of 5 ns a split takes 205 at least: all placements were simulated.
    assert least(step, ops=1.25) == pytest.approx(205 / 1.25 / 200)
    # The second device alone is like the first: there all ops take what they take here.
    assert least(step, ops=1.01) == 1.0


def test_what_all_ops_may_take_less_on_a_device_unlike_the_first_comes_off_by_hand() -> None:
    step = replace(chain(pair()), costs_on={"b": price({"one": 40, "two": 40})})

    assert least(step, ops=1.25) == pytest.approx(80 / 1.25 / 200)


@pytest.mark.parametrize(
    "second",
    [Device(name="b", kind="GPU"), Device(name="b", kind="CPU", host="a")],
    ids=["another kind", "another host"],
)
def test_a_device_is_not_like_the_first_only_because_ops_cost_the_same(second: Device) -> None:
    like = pair()
    unlike = replace(like, devices=(like.devices[0], second))

    assert least(chain(like), ops=1.01) == 1.0
    assert least(chain(unlike), ops=1.01) == pytest.approx(200 / 1.01 / 200)


def test_costs_may_also_be_right() -> None:
    like = pair()
    first, second = (
        replace(device, launch_overhead_ns=launch_ns)
        for device, launch_ns in zip(like.devices, (2, 1), strict=True)
    )
    step = PlacedStep(
        graph=OpGraph([op("one", 4)], []),
        placement=place({"one": "a"}),
        costs=price({"one": 1}),
        cluster=replace(like, devices=(first, second)),
    )

    # In whole ns, launches that take 1.5 times as long take 3 and 2; 1.4 times would be 3 and 1.
    assert least(step, launches=1.5) == pytest.approx((1 + 1) / (1 + 2))


def everywhere(step: PlacedStep) -> list[Placement]:
    names = [each.name for each in placed_ops(step.graph)]
    devices = step.cluster.device_names()
    return [
        place(dict(zip(names, chosen, strict=True)))
        for chosen in product(devices, repeat=len(names))
        if len(set(chosen)) > 1
    ]


@cases(60)
@given(placed_steps(hosts=True))
def test_no_split_is_below_it_however_wrong_costs_are_within_the_doubt(step: PlacedStep) -> None:
    assume(2 <= len(placed_ops(step.graph)) <= 5)
    wrong = CostUncertainty(copies=2.0, launches=1.5, ops=1.1, may_hide_launches=True)
    known = sensitivity(step, wrong)
    limit = least_ratio_if_wrong(step.graph, step.all_costs(), known)
    for placement in everywhere(step):
        try:
            low = known.ratio(placement).low
        except PlacementError:  # It tears a variable's ops apart.
            continue
        assert limit <= low + 1e-9
