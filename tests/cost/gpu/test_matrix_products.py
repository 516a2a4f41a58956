from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import CLOCK, GPU, IDEAL, numbers

from placement_advisor.cost.gpu.kernels import (
    ProductConstants,
    Products,
    Tiling,
    product_s,
    tiled_s,
)

PLAIN = ProductConstants(
    tiling=IDEAL,
    clock=CLOCK,
    scattered=0,
    straddling=0,
    writing=0,
    far_rows=0,
    far_rows_k=1000,
    far_rows_size=1,
    half_tiles=0,
    half_tiles_n=1,
    record_launch_s=0,
)
FAST = 1e18


def seconds(constants=PLAIN, bandwidth=FAST, *, gpu=GPU, has_weights=True, **changes):
    products = Products(**numbers(**({"m": 1024, "n": 1024, "k": 1024, "count": 1} | changes)))
    return float(product_s(products, gpu, constants, bandwidth, has_weights=has_weights)[0])


def test_an_ideal_product_runs_at_peak_by_hand():
    assert seconds() == pytest.approx(2 * 1024**3 / 4e9)


@pytest.mark.parametrize(
    ("scattered", "has_weights", "read"),
    # Right operands that are no weights are read in long pieces.
    [(0, True, 2 * 1024), (2, True, 3 * 2 * 1024), (2, False, 3 * 1024 + 1024)],
)
def test_a_product_of_many_bytes_takes_their_time_by_hand(scattered, has_weights, read):
    constants = replace(PLAIN, scattered=scattered)
    found = seconds(constants, bandwidth=1.0, has_weights=has_weights, k=1)
    assert found == pytest.approx(4 * (1024 * 1024 + read))


@pytest.mark.parametrize(("k", "share"), [(2**17, 0), (2**17 + 4, 0.5), (2**17 + 1, 0.875)])
def test_pieces_in_two_sectors_are_read_again_by_hand(k, share):
    read_s = 4 * 16 * 16 * 64 * k / 1e9
    straddling = replace(PLAIN, straddling=0.5)
    assert seconds(straddling, bandwidth=1e9, k=k) == pytest.approx(
        seconds(bandwidth=1e9, k=k) + 0.5 * share * read_s, rel=1e-3
    )


def test_a_card_on_the_slot_keeps_the_clock_of_its_memory():
    # A product of one step moves bytes, one of many computes: here twice as long as elsewhere.
    slot = replace(GPU, power_watts=70.0)
    assert seconds(gpu=slot, bandwidth=1.0, k=1) == pytest.approx(seconds(bandwidth=1.0, k=1))
    assert seconds(gpu=slot, k=2**20) == pytest.approx(2 * seconds(k=2**20), rel=1e-3)


def test_writing_the_result_comes_on_top_by_hand():
    computing_s = 2 * 1024**2 * 1e6 / 4e9 + 0.5 * 4 * 1024**2 / 1e8
    read_s = 4 * (1024**2 + 2 * 1024e6) / 1e8
    assert seconds(replace(PLAIN, writing=0.5), bandwidth=1e8, k=10**6) == pytest.approx(
        (computing_s**3 + read_s**3) ** (1 / 3)
    )


def test_far_rows_cost_more_for_each_doubling_of_k_by_hand():
    constants = replace(PLAIN, far_rows=0.4)
    # log2(1 + (2^20 / 1000)^2) / 2 doublings, for all but few of the rows; 16 x 16 tiles of 64
    # rows, each of which reads 64 columns of weights.
    read_s = 4 * 16 * 16 * 64 * 2**20 / 1e6
    again_s = 0.4 * 10.0344 * 1024 / (1024 + 150) * read_s
    at_peak_s = 2 * 1024**2 * 2**20 / 4e9
    assert seconds(constants, bandwidth=1e6, k=2**20) == pytest.approx(
        ((at_peak_s + again_s) ** 3 + (4 * (2**31 + 2**20) / 1e6) ** 3) ** (1 / 3), rel=1e-3
    )
    assert seconds(constants, bandwidth=1e9, k=10) == pytest.approx(
        seconds(bandwidth=1e9, k=10), rel=1e-3
    )


def test_half_a_tile_along_m_costs_more_by_hand():
    constants = replace(PLAIN, half_tiles=1.0)
    assert seconds(constants, bandwidth=1e9, m=1024, k=10**5) == seconds(
        bandwidth=1e9, m=1024, k=10**5
    )
    half_s = seconds(bandwidth=1e9, m=1024 + 64, k=10**5)
    read_s = 4 * 17 * 16 * 64 * 10**5 / 1e9
    assert seconds(constants, bandwidth=1e9, m=1024 + 64, k=10**5) == pytest.approx(
        half_s + read_s, rel=1e-3
    )


# 4 multiprocessors of 1e9 flop/s each.
ONE_TILE = Tiling(peak_shares={"128x128": 1.0}, filling_k=0, single_tile=0, adding_up_s=1.0)


def tiled(m, n, k, tiling=ONE_TILE, count=1):
    products = Products(**numbers(m=m, n=n, k=k, count=count))
    return float(tiled_s(products, GPU, tiling, bandwidth=1e12)[0])


def test_tiles_take_waves_filling_and_splitting_by_hand():
    wave_s = 2 * 128 * 128 * 1000 / 1e9
    assert tiled(256, 256, 1000) == pytest.approx(wave_s)
    assert tiled(256, 129, 1000) == pytest.approx(wave_s)
    assert tiled(128, 5 * 128, 1000) == pytest.approx(2 * wave_s)
    assert tiled(128, 128, 1000, count=5) == pytest.approx(2 * wave_s)

    tiling = replace(ONE_TILE, filling_k=50, single_tile=0.2)
    step_s = 2 * 128 * 128 / 1e9
    assert tiled(128, 128, 1000, tiling) == pytest.approx(1050 * step_s * 1.2)
    assert tiled(128, 8 * 128, 1000, tiling) == pytest.approx(2 * 1050 * step_s * 1.1)

    # Four parts of 2^18 steps, then five results of 128x128 numbers through memory.
    tiling = replace(ONE_TILE, adding_up_s=0.5)
    expected = 2 * 128 * 128 * 2**18 / 1e9 + 0.5 + 5 * 4 * 128 * 128 / 1e12
    assert tiled(128, 128, 2**20, tiling) == pytest.approx(expected)

    tiling = replace(ONE_TILE, peak_shares={"128x128": 1.0, "32x32": 0.5})
    assert tiled(32, 32, 1000, tiling) == pytest.approx(2 * 32 * 32 * 1000 / 0.5e9)
    assert tiled(256, 256, 1000, tiling) == tiled(256, 256, 1000)


def test_products_know_their_flops_and_bytes_by_hand():
    products = Products(**numbers(m=2, n=3, k=5, count=7))
    np.testing.assert_array_equal(products.flops, [2 * 7 * 30])
    np.testing.assert_array_equal(products.size_bytes, [4 * 7 * (10 + 15 + 6)])
