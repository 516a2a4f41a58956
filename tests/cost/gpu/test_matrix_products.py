from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_samples import CLOCK, GPU, IDEAL, numbers

from placement_advisor.cost.gpu.matrix_products import ProductConstants, product_s
from placement_advisor.cost.gpu.tiles import Products

PLAIN = ProductConstants(
    tiling=IDEAL,
    clock=CLOCK,
    scattered=0,
    writing=0,
    far_rows=0,
    far_rows_k=1000,
    far_rows_size=1,
    half_tiles=0,
    half_tiles_n=1,
    record_launch_s=0,
)
FAST = 1e18


def seconds(constants: ProductConstants = PLAIN, bandwidth: float = FAST, **changes: int) -> float:
    sizes = {"m": 1024, "n": 1024, "k": 1024, "count": 1} | changes
    return float(product_s(Products(**numbers(**sizes)), GPU, constants, bandwidth)[0])


def test_an_ideal_product_runs_at_peak_by_hand() -> None:
    assert seconds() == pytest.approx(2 * 1024**3 / 4e9)


def test_a_product_of_many_bytes_takes_their_time_by_hand() -> None:
    moved = 4 * (1024 * 1024 + 2 * 1024)
    assert seconds(bandwidth=1.0, k=1) == pytest.approx(moved)


def test_scattered_operands_take_longer_by_hand() -> None:
    moved = 4 * (1024 * 1024 + 3 * 2 * 1024)
    assert seconds(replace(PLAIN, scattered=2), bandwidth=1.0, k=1) == pytest.approx(moved)


def test_writing_the_result_comes_on_top_by_hand() -> None:
    assert seconds(replace(PLAIN, writing=0.5), bandwidth=1e8, k=10**6) == pytest.approx(
        2 * 1024**2 * 1e6 / 4e9 + 0.5 * 4 * 1024**2 / 1e8, rel=1e-3
    )


def test_far_rows_cost_more_for_each_doubling_of_k_by_hand() -> None:
    constants = replace(PLAIN, far_rows=0.4)
    at_peak_s = seconds(k=2**20)
    # log2(1 + (2^20 / 1000)^2) / 2 doublings, for all but few of the rows.
    expected = 1 + 0.4 * 10.0344 * 1024 / (1024 + 150)
    assert seconds(constants, k=2**20) == pytest.approx(at_peak_s * expected, rel=1e-3)
    assert seconds(constants, k=10) == pytest.approx(seconds(k=10), rel=1e-3)


def test_half_a_tile_along_m_costs_more() -> None:
    constants = replace(PLAIN, half_tiles=1.0)
    assert seconds(constants, m=1024, k=100_000) == pytest.approx(seconds(m=1024, k=100_000))
    half_s = seconds(m=1024 + 64, k=100_000)
    assert seconds(constants, m=1024 + 64, k=100_000) == pytest.approx(2 * half_s, rel=1e-3)
