"""A step at other batches: by hand for a square, and for any polynomial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import edge, sized
from placed_steps import pair, place, price

from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Kernel, KernelFamily, Op, Role
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.simulator.step_growth import GrowingStep, StepGrowth

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph

BATCH = 8
ON_A = {"x": "a", "encode": "a", "pairs": "a", "decay": "a"}


def retrieval(samples: int) -> OpGraph:
    """Return a step that encodes samples, scores all pairs of them, and decays its weights."""
    return sized(
        [
            Op(name="x", kind="Placeholder", role=Role.INPUT, output_bytes=(40 * samples,)),
            _op("encode", 100 * samples, flops=1_000 * samples, bytes_accessed=100),
            _op("pairs", 4 * samples**2, flops=50 * samples**2, bytes_accessed=4 * samples**2),
            _op("decay", 600, flops=150, bytes_accessed=1_200),
        ],
        [edge("x", "encode"), edge("encode", "pairs")],
    )


def _op(name: str, size_bytes: int | None, **more: Any) -> Op:
    return Op(name=name, kind="Mul", output_bytes=(size_bytes,), **more)


def growth_of(at: Any, batch: int = BATCH) -> StepGrowth:
    return StepGrowth(at(batch), batch, {times: at(batch * times) for times in (2, 3, 4)})


def growing(at: Any, costs: dict[str, int], batch: int = BATCH) -> GrowingStep:
    cluster = pair()
    return GrowingStep(growth_of(at, batch), price(costs).everywhere(cluster), cluster)


def test_a_step_at_another_batch_is_what_a_trace_there_gives():
    growth = growth_of(retrieval)
    for samples in (1, 3, 7, 8, 9, 24, 100, 1_000_000):
        assert growth.at(samples) == retrieval(samples)


def test_what_is_more_for_each_sample_is_named():
    assert growth_of(retrieval).faster == ("pairs",)


def test_what_ops_take_grows_as_their_work_does_by_hand():
    # Of 8 samples, encode takes 80 ns, bound by its flops at 50 Gflop/s; pairs 100 ns; decay 60 ns.
    step = growing(retrieval, {"encode": 80, "pairs": 100, "decay": 60})
    alone = place(ON_A)
    assert step.step_ns(alone, 8) == 80 + 100 + 60
    assert step.step_ns(alone, 16) == 160 + 400 + 60
    assert step.step_ns(alone, 4) == 40 + 25 + 60


def test_work_is_counted_in_samples_of_the_steps_own_batch_by_hand():
    step = growing(retrieval, {"encode": 80, "pairs": 100, "decay": 60})
    # 16 samples are 560 ns of what grows, where 8 are 180.
    assert step.worth(8) == 8
    assert step.worth(16) == pytest.approx(8 * 560 / 180)


def test_where_all_grows_evenly_samples_are_worth_their_number():
    def at(samples: int) -> OpGraph:
        return sized([_op("one", 4 * samples, flops=9 * samples, bytes_accessed=0)], [])

    step = growing(at, {"one": 72})
    assert step.growth.faster == ()
    assert [step.worth(n) for n in (1, 8, 80)] == pytest.approx([1, 8, 80])


@given(
    st.lists(st.integers(0, 10_000), min_size=3, max_size=3),
    st.integers(1, 64),
    st.integers(1, 4_096),
)
def test_any_square_is_found_again(parts: list[int], batch: int, samples: int) -> None:
    def amount(n: int) -> int:
        return parts[0] + parts[1] * n + parts[2] * n**2

    def at(n: int) -> OpGraph:
        return sized([_op("one", amount(n), flops=2 * amount(n), bytes_accessed=0)], [])

    growth = growth_of(at, batch)
    assert growth.at(samples) == at(samples)
    assert growth.faster == (("one",) if parts[2] else ())


def test_products_of_matrices_of_pairs_grow_with_the_cube():
    def at(n: int) -> OpGraph:
        kernel = Kernel(KernelFamily.LINEAR, (1, n, n, n))
        return sized([_op("one", 4 * n**2, flops=2 * n**3, bytes_accessed=12 * n**2)._replace(
            kernel=kernel)], [])  # fmt: skip

    assert growth_of(at).at(56) == at(56)


@pytest.mark.parametrize("batch", [7, 14, 30])
def test_what_is_rounded_up_is_on_the_line_that_it_is_rounded_from(batch: int) -> None:
    # An expert of five has room for a fifth of the samples and a quarter more, rounded up.
    def at(n: int) -> OpGraph:
        return sized([_op("one", 400 * -(-5 * n // 20), flops=None, bytes_accessed=0)], [])

    growth = growth_of(at, batch)
    assert growth.faster == ()
    (size,) = growth.at(64 * batch).op("one").output_bytes
    assert size == pytest.approx(400 * 16 * batch, rel=0.16)


def test_what_grows_in_no_way_that_is_known_is_named():
    sizes = {8: 100, 16: 500, 24: 120, 32: 130}
    with pytest.raises(BatchSplitError, match=r"how op 'one' \(Mul\) grows with the batch"):
        growth_of(lambda n: sized([_op("one", sizes[n])], []))


def test_what_has_a_size_at_some_batches_alone_is_named():
    sizes = {8: 100, 16: None, 24: None, 32: None}
    with pytest.raises(BatchSplitError, match="'one'"):
        growth_of(lambda n: sized([_op("one", sizes[n])], []))


def test_an_op_of_unknown_work_grows_as_the_largest_of_what_it_reads():
    # picked has as many rows as the data say, and so is its size; so has what reads it.
    def at(n: int) -> OpGraph:
        ops = [
            Op(name="x", kind="Placeholder", role=Role.INPUT, output_bytes=(40 * n,)),
            _op("picked", None),
            _op("summed", None),
            _op("apart", 8),
        ]
        return sized(ops, [edge("x", "picked"), edge("picked", "summed")])

    step = growing(at, {"picked": 10, "summed": 20, "apart": 30})
    alone = place({"x": "a", "picked": "a", "summed": "a", "apart": "a"})
    assert step.step_ns(alone, 3 * BATCH) == 30 + 60 + 30


def test_ops_that_move_no_bytes_take_as_long_at_any_batch():
    def at(n: int) -> OpGraph:
        return sized([_op("one", 4 * n, flops=0, bytes_accessed=0)], [])

    assert growing(at, {"one": 7}).step_ns(place({"one": "a"}), 64 * BATCH) == 7


def test_the_step_at_its_own_batch_is_the_step():
    costs = {"encode": 80, "pairs": 100, "decay": 60}
    step = growing(retrieval, costs)
    tables = price(costs).everywhere(step.cluster)
    split = place({**ON_A, "pairs": "b"})
    expected = Simulator(retrieval(BATCH), tables, step.cluster).step_ns(split)
    assert step.step_ns(split, BATCH) == expected
