"""The known step is what it says: results and sizes, redone in another way."""

from __future__ import annotations

import numpy as np

from placement_advisor.tf.known_step import COPIES, LARGE_SIDE, OPS, SIDE, numbers, outputs, shift


def test_results_are_those_of_real_products() -> None:
    small, large = numbers(SIDE), numbers(LARGE_SIDE)
    moved = {count: small @ np.linalg.matrix_power(shift(SIDE), count) for count in (3, 6, 7)}
    large_once = large @ shift(LARGE_SIDE)
    large_total = large_once + large_once + large_once @ shift(LARGE_SIDE)
    expected = {
        "near/total": moved[7] + moved[6] + moved[3].sum(axis=1, keepdims=True),
        "near/large_sum": large_total + large_total,
    }
    assert outputs().keys() == expected.keys()
    for name, right in outputs().items():
        np.testing.assert_array_equal(right, expected[name])


def test_every_element_that_is_lost_or_misplaced_would_show() -> None:
    values = numbers(SIDE)
    for axis in (0, 1):
        assert (values != np.roll(values, 1, axis)).all()
    assert values.max() < 64  # Eight binary digits, as bfloat16 has them, hold it.


def test_sizes_differ_by_direction_and_every_copy_has_ends_in_the_step() -> None:
    ends = [(copy.producer.partition("/")[0], copy.size_bytes) for copy in COPIES]
    assert sum(size for end, size in ends if end == "near") == 4_457_472
    assert sum(size for end, size in ends if end == "far") == 4_718_592
    assert {copy.producer for copy in COPIES} | {r for c in COPIES for r in c.readers} <= set(OPS)
    assert all(
        not r.startswith(end) for (end, _), c in zip(ends, COPIES, strict=True) for r in c.readers
    )
