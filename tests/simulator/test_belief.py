"""What runs teach about a model's splits, by hand and in its limits."""

from __future__ import annotations

import math

import pytest
from placed_steps import place, star

from placement_advisor.machine.devices import CopyWork
from placement_advisor.simulator.sensitivity import (
    COMMON,
    NINE_IN_TEN,
    REST,
    CostUncertainty,
    MeasuredRatio,
    PredictionCorrection,
    Sensitivity,
)

DOUBT = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)
STEP = star(16, op_ns=40_000, work=CopyWork(per_copy_ns=5_000), latency_ns=30_000)
ALONE = STEP.placement
SPLITS = [
    place({name: "b" if i % every == 1 else "a" for i, name in enumerate(ALONE.device_of)})
    for every in (2, 3, 5, 8)
]
SENSITIVITY = Sensitivity(STEP.simulator(), ALONE, DOUBT)
SIMULATED = [SENSITIVITY.ratio(split).ratio for split in SPLITS]


def seen(split: int, times: float, deviation: float = 0.0) -> MeasuredRatio:
    """Return a split that took so many times as long as simulated."""
    return MeasuredRatio(
        placement=SPLITS[split], ratio=times * SIMULATED[split], deviation=deviation
    )


def test_before_any_run_the_ratio_is_the_simulated_one() -> None:
    found = PredictionCorrection(SENSITIVITY, ()).ratio(SPLITS[0])
    assert found.ratio == pytest.approx(SIMULATED[0])
    ends = math.exp(NINE_IN_TEN * math.hypot(COMMON, REST))
    assert (found.low, found.high) == pytest.approx((found.ratio / ends, found.ratio * ends))
    assert (found.runs, found.doubt) == (0, DOUBT)


def test_what_runs_took_longer_is_expected_of_others_in_part_by_hand() -> None:
    found = PredictionCorrection(SENSITIVITY, [seen(1, 1.2)]).ratio(SPLITS[0])
    # The common amount has a hundredth as its variance, the rest 0.0144.
    assert found.ratio / SIMULATED[0] == pytest.approx(1.2 ** (0.0100 / 0.0244))
    assert found.runs == 1


def test_the_more_runs_agree_the_nearer_it_is_and_the_narrower_its_range() -> None:
    found = [
        PredictionCorrection(SENSITIVITY, [seen(split, 1.2) for split in splits]).ratio(SPLITS[0])
        for splits in ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3) * 1_000)
    ]
    times = [each.ratio / SIMULATED[0] for each in found]
    widths = [each.high / each.low for each in found]
    assert times == sorted(times)
    assert widths == sorted(widths, reverse=True)
    assert times[-1] == pytest.approx(1.2, rel=1e-3)
    assert widths[-1] == pytest.approx(math.exp(2 * NINE_IN_TEN * REST), rel=1e-3)


def test_runs_that_differ_cancel() -> None:
    found = PredictionCorrection(SENSITIVITY, [seen(1, 1.3), seen(2, 1 / 1.3)]).ratio(SPLITS[0])
    assert found.ratio == pytest.approx(SIMULATED[0])


def test_a_run_that_wavers_teaches_less() -> None:
    sure, unsure = (
        PredictionCorrection(SENSITIVITY, [seen(1, 1.2, deviation)]).ratio(SPLITS[0])
        for deviation in (0.01, 0.5)
    )
    assert SIMULATED[0] < unsure.ratio < sure.ratio
    assert unsure.high / unsure.low > sure.high / sure.low
