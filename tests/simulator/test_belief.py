"""What runs teach about costs: on steps whose true costs are known to the test alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from placed_steps import PlacedStep, place, star

from placement_advisor.machine.devices import CopyWork, Dispatch
from placement_advisor.simulator.belief import FACTORS, NINE_IN_TEN, REST, Belief, Seen
from placement_advisor.simulator.sensitivity import Doubt, Sensitivity

DOUBT = Doubt(copies=1.5, launches=1.5, ops=1.1)
# In ns, large enough that a rounded nanosecond is nothing.
DISPATCH = Dispatch(
    step_overhead_ns=10_000,
    partition_overhead_ns=20_000,
    remote_start_ns=15_000,
    remote_end_ns=15_000,
    quantum_ns=30_000,
    op_threads=2,
)
STEP = star(
    16,
    op_ns=40_000,
    work=CopyWork(per_copy_ns=15_000, ns_per_byte=10.0),
    latency_ns=30_000,
    dispatch=DISPATCH,
    launch_overhead_ns=2_000,
)
ALONE = STEP.placement
# The first three keep the root's device busy, the others the device that it sends to.
SPLITS = [
    *(
        place({name: "b" if i % every == 1 else "a" for i, name in enumerate(ALONE.device_of)})
        for every in (3, 4, 6)
    ),
    *(
        place({name: "a" if i % every == 0 else "b" for i, name in enumerate(ALONE.device_of)})
        for every in (3, 4, 6)
    ),
]
NUMBERS = range(len(SPLITS))


def sensitivity(step: PlacedStep = STEP) -> Sensitivity:
    return Sensitivity(step.simulator(), ALONE, DOUBT)


def true_ratio(factors: dict[str, float], split: int) -> float:
    """Return the ratio of a split where costs are off by these factors."""
    cluster = STEP.cluster
    for name, factor in factors.items():
        cluster = FACTORS[name].change(cluster, factor)
    simulator = replace(STEP, cluster=cluster).simulator()
    return simulator.step_ns(SPLITS[split]) / simulator.step_ns(ALONE)


def seen(factors: dict[str, float], *splits: int, deviation: float = 0.001) -> list[Seen]:
    return [
        Seen(placement=SPLITS[split], ratio=true_ratio(factors, split), deviation=deviation)
        for split in splits
    ]


def test_before_any_run_the_ratio_is_the_simulated_one() -> None:
    found = Belief(sensitivity(), ALONE, ()).ratio(SPLITS[0])
    assert found.ratio == pytest.approx(true_ratio({}, 0))
    assert found.low < found.ratio < found.high
    assert (found.runs, found.doubt) == (0, DOUBT)


@pytest.mark.parametrize("name", FACTORS)
def test_a_cost_that_is_off_is_learned_from_other_splits(name: str) -> None:
    off = {name: math.exp(2 * FACTORS[name].deviation)}
    truth = [math.log(true_ratio(off, split)) for split in NUMBERS]
    # The split that it changes most.
    split = max(NUMBERS, key=lambda each: abs(truth[each] - math.log(true_ratio({}, each))))
    others = [each for each in NUMBERS if each != split]
    before, after = (
        Belief(sensitivity(), ALONE, each).ratio(SPLITS[split]) for each in ((), seen(off, *others))
    )
    error_before, error_after = (
        abs(math.log(found.ratio) - truth[split]) for found in (before, after)
    )
    # Launches are on either side of a ratio, and do little to it.
    assert error_before > (0.001 if name == "launches" else 0.01)
    assert error_after < 0.9 * error_before
    assert after.runs == len(others)


def test_a_range_is_narrower_the_more_has_run_and_never_than_what_is_left() -> None:
    widths = []
    for splits in ((), (1,), (1, 2), (1, 2, 3)):
        found = Belief(sensitivity(), ALONE, seen({}, *splits)).ratio(SPLITS[0])
        widths.append(math.log(found.high / found.low))
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == len(widths)
    assert widths[-1] > 2 * NINE_IN_TEN * REST


def test_a_run_that_wavers_teaches_less() -> None:
    off = {"receiving": 1.5}
    sure, unsure = (
        Belief(sensitivity(), ALONE, seen(off, 4, deviation=deviation)).ratio(SPLITS[3])
        for deviation in (0.001, 0.5)
    )
    simulated = true_ratio({}, 3)
    assert simulated < unsure.ratio < sure.ratio
    assert unsure.high / unsure.low > sure.high / sure.low


def test_what_all_splits_take_longer_is_expected_of_further_ones() -> None:
    longer = [replace(each, ratio=1.2 * each.ratio) for each in seen({}, 1, 2, 3)]
    found = Belief(sensitivity(), ALONE, longer).ratio(SPLITS[0])
    assert 1.05 < found.ratio / true_ratio({}, 0) < 1.2


def test_costs_to_search_by_are_those_believed_and_dearer_with_caution() -> None:
    belief = Belief(sensitivity(), ALONE, seen({"receiving": 1.5}, *NUMBERS))
    likely, cautious = (
        belief.simulator(caution).cluster.links[0].receiver.per_copy_ns for caution in (0.0, 1.0)
    )
    assert STEP.cluster.links[0].receiver.per_copy_ns < likely < cautious


def test_where_nothing_is_sent_copies_teach_nothing() -> None:
    again = Seen(placement=ALONE, ratio=1.0, deviation=0.001)
    before, after = (Belief(sensitivity(), ALONE, each) for each in ((), (again,)))
    assert after.simulator(0.0).cluster == before.simulator(0.0).cluster
