from dataclasses import replace

import pytest
from gpu_samples import CLOCK, GPU, IDEAL, numbers

from placement_advisor.cost.gpu.kernels import ProductConstants, product_s
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


def seconds(constants=PLAIN, bandwidth=FAST, **changes):
    sizes = {"m": 1024, "n": 1024, "k": 1024, "count": 1} | changes
    return float(product_s(Products(**numbers(**sizes)), GPU, constants, bandwidth)[0])


def test_an_ideal_product_takes_its_flops_at_peak_or_its_bytes_by_hand():
    assert seconds() == pytest.approx(2 * 1024**3 / 4e9)
    moved = 4 * (1024 * 1024 + 2 * 1024)
    assert seconds(bandwidth=1.0, k=1) == pytest.approx(moved)
    moved = 4 * (1024 * 1024 + 3 * 2 * 1024)
    assert seconds(replace(PLAIN, scattered=2), bandwidth=1.0, k=1) == pytest.approx(moved)
    assert seconds(replace(PLAIN, writing=0.5), bandwidth=1e8, k=10**6) == pytest.approx(
        2 * 1024**2 * 1e6 / 4e9 + 0.5 * 4 * 1024**2 / 1e8, rel=1e-3
    )


def test_far_rows_and_half_tiles_cost_more_by_hand():
    constants = replace(PLAIN, far_rows=0.4)
    # log2(1 + (2^20 / 1000)^2) / 2 doublings, for all but few of the rows; 16 x 16 tiles of 64
    # rows, each of which reads 64 columns of weights.
    read_s = 4 * 16 * 16 * 64 * 2**20 / 1e6
    again_s = 0.4 * 10.0344 * 1024 / (1024 + 150) * read_s
    at_peak_s = 2 * 1024**2 * 2**20 / 4e9
    assert seconds(constants, bandwidth=1e6, k=2**20) == pytest.approx(
        ((at_peak_s + again_s) ** 4 + (4 * (2**31 + 2**20) / 1e6) ** 4) ** 0.25, rel=1e-3
    )
    assert seconds(constants, bandwidth=1e9, k=10) == pytest.approx(
        seconds(bandwidth=1e9, k=10), rel=1e-3
    )

    constants = replace(PLAIN, half_tiles=1.0)
    assert seconds(constants, bandwidth=1e9, m=1024, k=10**5) == seconds(
        bandwidth=1e9, m=1024, k=10**5
    )
    half_s = seconds(bandwidth=1e9, m=1024 + 64, k=10**5)
    read_s = 4 * 17 * 16 * 64 * 10**5 / 1e9
    assert seconds(constants, bandwidth=1e9, m=1024 + 64, k=10**5) == pytest.approx(
        half_s + read_s, rel=1e-3
    )
