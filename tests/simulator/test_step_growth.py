import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import edge, sized
from placed_steps import pair, place, price, star

from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Kernel, KernelFamily, Op, Role
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
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.simulator.step_growth import GrowingStep, StepGrowth

BATCH = 8
ON_A = {"x": "a", "encode": "a", "pairs": "a", "decay": "a"}


def retrieval(samples):
    """Return a step that encodes samples, scores all pairs of them, and decays its weights."""
    return sized(
        [
            Op("x", "Placeholder", Role.INPUT, output_bytes=(40 * samples,)),
            _op("encode", 100 * samples, flops=1_000 * samples, bytes_accessed=100),
            _op("pairs", 4 * samples**2, flops=50 * samples**2, bytes_accessed=4 * samples**2),
            _op("decay", 600, flops=150, bytes_accessed=1_200),
        ],
        [edge("x", "encode"), edge("encode", "pairs")],
    )


def _op(name, size_bytes, **more):
    return Op(name, "Mul", output_bytes=(size_bytes,), **more)


def growth_of(at, batch=BATCH):
    return StepGrowth(at(batch), batch, {times: at(batch * times) for times in (2, 3, 4)})


def growing(at, costs, batch=BATCH):
    cluster = pair()
    return GrowingStep(growth_of(at, batch), price(costs).everywhere(cluster), cluster)


def test_a_step_at_another_batch_is_what_a_trace_there_gives():
    growth = growth_of(retrieval)
    for samples in (1, 3, 7, 8, 9, 24, 100, 1_000_000):
        assert growth.at(samples) == retrieval(samples)


def test_what_is_more_for_each_sample_takes_and_is_worth_more_by_hand():
    assert growth_of(retrieval).faster == ("pairs",)
    # Of 8 samples, encode takes 80 ns, bound by its flops at 50 Gflop/s; pairs 100 ns; decay 60 ns.
    costs = {"encode": 80, "pairs": 100, "decay": 60}
    step, alone = growing(retrieval, costs), place(ON_A)
    assert step.step_ns(alone, 8) == 80 + 100 + 60
    assert step.step_ns(alone, 16) == 160 + 400 + 60
    assert step.step_ns(alone, 4) == 40 + 25 + 60
    # 16 samples are 560 ns of what grows, where 8 are 180.
    assert step.worth(8) == 8
    assert step.worth(16) == pytest.approx(8 * 560 / 180)
    tables = price(costs).everywhere(step.cluster)
    split = place({**ON_A, "pairs": "b"})
    expected = Simulator(retrieval(BATCH), tables, step.cluster).step_ns(split)
    assert step.step_ns(split, BATCH) == expected


@given(st.tuples(*[st.integers(0, 10_000)] * 3), st.integers(1, 64), st.integers(1, 4_096))
def test_any_square_is_found_again(parts, batch, samples):
    def amount(n):
        return parts[0] + parts[1] * n + parts[2] * n**2

    def at(n):
        return sized([_op("one", amount(n), flops=2 * amount(n), bytes_accessed=0)], [])

    growth = growth_of(at, batch)
    assert growth.at(samples) == at(samples)
    assert growth.faster == (("one",) if parts[2] else ())


def test_products_of_matrices_of_pairs_grow_with_the_cube():
    def at(n):
        kernel = Kernel(KernelFamily.LINEAR, (1, n, n, n))
        return sized([_op("one", 4 * n**2, flops=2 * n**3, bytes_accessed=12 * n**2)._replace(
            kernel=kernel)], [])  # fmt: skip

    assert growth_of(at).at(56) == at(56)


@pytest.mark.parametrize("batch", [7, 14, 30])
def test_what_is_rounded_up_is_on_the_line_that_it_is_rounded_from(batch):
    # An expert of five has room for a fifth of the samples and a quarter more, rounded up.
    def at(n):
        return sized([_op("one", 400 * -(-5 * n // 20), flops=None, bytes_accessed=0)], [])

    growth = growth_of(at, batch)
    assert growth.faster == ()
    (size,) = growth.at(64 * batch).op("one").output_bytes
    assert size == pytest.approx(400 * 16 * batch, rel=0.16)


def test_what_grows_in_no_known_way_or_has_a_size_at_some_batches_alone_is_named():
    sizes = {8: 100, 16: 500, 24: 120, 32: 130}
    with pytest.raises(BatchSplitError, match=r"how op 'one' \(Mul\) grows with the batch"):
        growth_of(lambda n: sized([_op("one", sizes[n])], []))
    sizes = {8: 100, 16: None, 24: None, 32: None}
    with pytest.raises(BatchSplitError, match="'one'"):
        growth_of(lambda n: sized([_op("one", sizes[n])], []))


def test_an_op_of_unknown_work_grows_as_the_largest_of_what_it_reads():
    # picked has as many rows as the data say, and so is its size; so has what reads it.
    def at(n):
        ops = [
            Op("x", "Placeholder", Role.INPUT, output_bytes=(40 * n,)),
            _op("picked", None),
            _op("summed", None),
            _op("apart", 8),
        ]
        return sized(ops, [edge("x", "picked"), edge("picked", "summed")])

    step = growing(at, {"picked": 10, "summed": 20, "apart": 30})
    alone = place({"x": "a", "picked": "a", "summed": "a", "apart": "a"})
    assert step.step_ns(alone, 3 * BATCH) == 30 + 60 + 30


DOUBT = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)
STEP = star(16, op_ns=40_000, work=CopyWork(per_copy_ns=5_000), latency_ns=30_000)
ALONE = STEP.placement
SPLITS = [
    place({name: "b" if i % every == 1 else "a" for i, name in enumerate(ALONE.device_of)})
    for every in (2, 3, 5, 8)
]
SENSITIVITY = Sensitivity(STEP.simulator(), ALONE, DOUBT)
SIMULATED = [SENSITIVITY.ratio(split).ratio for split in SPLITS]


def seen(split, times, deviation=0.0):
    """Return a split that took so many times as long as simulated."""
    return MeasuredRatio(
        placement=SPLITS[split], ratio=times * SIMULATED[split], deviation=deviation
    )


def test_before_any_run_the_ratio_is_the_simulated_one():
    found = PredictionCorrection(SENSITIVITY, ()).ratio(SPLITS[0])
    assert found.ratio == pytest.approx(SIMULATED[0])
    ends = math.exp(NINE_IN_TEN * math.hypot(COMMON, REST))
    assert (found.low, found.high) == pytest.approx((found.ratio / ends, found.ratio * ends))
    assert (found.runs, found.doubt) == (0, DOUBT)


def test_what_runs_took_longer_is_expected_of_others_in_part_by_hand():
    found = PredictionCorrection(SENSITIVITY, [seen(1, 1.2, 0.16)]).ratio(SPLITS[0])
    # The common amount has a hundredth as its variance, the rest 0.0144, the measurement 0.0256.
    assert found.ratio / SIMULATED[0] == pytest.approx(1.2 ** (0.01 / 0.05))
    # Of the common amount 1 / (100 + 25) are left.
    width = math.exp(2 * NINE_IN_TEN * math.sqrt(0.008 + 0.0144))
    assert found.high / found.low == pytest.approx(width)
    assert found.runs == 1


def test_the_more_runs_agree_the_nearer_it_is_and_the_narrower_its_range():
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
