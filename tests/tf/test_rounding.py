"""How far two runs are apart; free of TensorFlow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placement_advisor.tf.deterministic_graph import relative_difference, rounded


def test_difference_is_relative_to_the_largest_value_by_hand():
    assert relative_difference(np.array([1.0, -4.5]), np.array([1.0, -4.0])) == 0.5 / 4.0


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (np.int64(3), np.int64(4), math.inf),
        (np.array([True]), np.array([True]), 0.0),
        (b"text", b"text", 0.0),
        (np.array([b"a", b"b"], dtype=object), np.array([b"a", b"c"], dtype=object), math.inf),
        (np.zeros((2,)), np.zeros((3,)), math.inf),
        (np.zeros((0,)), np.zeros((0,)), 0.0),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0.0),
        (np.array([np.nan, 1.0]), np.array([2.0, 1.0]), math.inf),
        (np.array([np.inf]), np.array([np.inf]), 0.0),
        (np.array([np.inf, 1.0]), np.array([np.inf, 2.0]), 0.5),
        (np.array([3j]), np.array([4j]), 0.25),
        # Both are zero, but for rounding.
        (np.array([1e-12]), np.array([2e-12]), 1e-12 / 1e-6),
    ],
)
def test_difference_of_exact_values_of_nan_and_of_noise(ours, theirs, expected):
    assert relative_difference(ours, theirs) == pytest.approx(expected)


def test_small_floats_can_be_nearly_equal():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ours, theirs = (np.array([value], dtype=ml_dtypes.bfloat16) for value in (1.0, 1.0078125))
    assert relative_difference(ours, theirs) == pytest.approx(0.0078125 / 1.0078125)


def test_rounded_values_differ_in_the_last_digit_only():
    values = {"w": np.linspace(-3, 3, 100, dtype=np.float32), "n": np.arange(3), "t": b"text"}
    moved = rounded(values, seed=1)
    assert moved["w"].dtype == np.float32
    assert 0.5 < np.mean(moved["w"] != values["w"]) <= 1.0
    assert relative_difference(moved["w"], values["w"]) < 4e-7
    assert np.array_equal(moved["n"], values["n"])
    assert rounded(values, seed=1)["w"].tolist() == moved["w"].tolist()
