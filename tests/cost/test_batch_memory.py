"""Memory of a device against its batch, and the best batch that fits."""

from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.batch import TILE, BatchMemory, BatchTime, best_batch, fit_batch_memory

MB = 1_000_000


def test_the_line_goes_through_the_two_largest_batches_and_no_part_is_negative():
    # The smallest is held up by something that does not grow.
    found = fit_batch_memory({8: 500 * MB, 16: 500 * MB, 32: 740 * MB})
    assert found == BatchMemory(fixed_bytes=260 * MB, per_sample_bytes=15 * MB)
    assert found.peak_bytes(64) == 1220 * MB

    assert fit_batch_memory({1: 10, 2: 30}) == BatchMemory(fixed_bytes=0, per_sample_bytes=15)
    assert fit_batch_memory({1: 30, 2: 10}) == BatchMemory(fixed_bytes=10, per_sample_bytes=0)


def test_a_step_whose_batch_changes_nothing_has_no_largest_nor_a_best_batch():
    found = fit_batch_memory({16: 30 * MB, 32: 30 * MB})
    assert found.largest_batch(30 * MB) is None
    assert found.largest_batch(29 * MB) == 0
    assert fit_batch_memory({4: 7 * MB}) == BatchMemory(fixed_bytes=7 * MB, per_sample_bytes=0)

    card = BatchTime(fixed_ns=5, per_sample_ns=1)
    assert best_batch([card, card], [4, None]) is None


@given(st.integers(0, 10**12), st.floats(1, 10**9), st.integers(1, 10**13), st.integers(1, 10**6))
def test_the_largest_batch_fits_and_one_more_does_not(fixed, each, there, off):
    memory = BatchMemory(fixed_bytes=fixed, per_sample_bytes=each)
    most = memory.largest_batch(there)
    assert memory.largest_batch(None) is None
    if most:
        assert memory.peak_bytes(most) <= there + 1
    assert memory.peak_bytes(most + off) >= there


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(100, 10**4), st.integers(1, 10**4)),
        min_size=1,
        max_size=3,
    ),
    st.floats(1e-3, 1),
)
def test_no_batch_that_fits_makes_more_samples_per_second(devices, part):
    cards = [BatchTime(fixed_ns=a, per_sample_ns=b) for a, b, _ in devices]
    most = [limit for *_, limit in devices]
    best = best_batch(cards, most)
    step_ns = part * max(c.step_ns(limit) for c, limit in zip(cards, most, strict=True))
    # Of parts of samples, all that the cards compute in that time.
    done = sum(
        min(limit, max(0.0, (step_ns - card.fixed_ns) / card.per_sample_ns))
        for card, limit in zip(cards, most, strict=True)
    )
    whole = done - TILE * len(cards)  # Rounding down takes less than a tile of each card.
    assert whole / step_ns * 1e9 <= best.most_samples_per_s * (1 + 1e-9)
