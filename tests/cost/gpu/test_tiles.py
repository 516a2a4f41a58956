from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import GPU, numbers

from placement_advisor.cost.gpu.tiles import Products, Tiling, tiled_s

# 4 multiprocessors of 1e9 flop/s each.
ONE_TILE = Tiling(peak_shares={"128x128": 1.0}, filling_k=0, single_tile=0, adding_up_s=1.0)


def seconds(m, n, k, tiling=ONE_TILE, count=1):
    products = Products(**numbers(m=m, n=n, k=k, count=count))
    return float(tiled_s(products, GPU, tiling, bandwidth=1e12)[0])


def test_tiles_take_waves_filling_and_splitting_by_hand():
    wave_s = 2 * 128 * 128 * 1000 / 1e9
    assert seconds(256, 256, 1000) == pytest.approx(wave_s)
    assert seconds(256, 129, 1000) == pytest.approx(wave_s)
    assert seconds(128, 5 * 128, 1000) == pytest.approx(2 * wave_s)
    assert seconds(128, 128, 1000, count=5) == pytest.approx(2 * wave_s)

    tiling = replace(ONE_TILE, filling_k=50, single_tile=0.2)
    step_s = 2 * 128 * 128 / 1e9
    assert seconds(128, 128, 1000, tiling) == pytest.approx(1050 * step_s * 1.2)
    assert seconds(128, 8 * 128, 1000, tiling) == pytest.approx(2 * 1050 * step_s * 1.1)

    # Four parts of 2^18 steps, then five results of 128x128 numbers through memory.
    tiling = replace(ONE_TILE, adding_up_s=0.5)
    expected = 2 * 128 * 128 * 2**18 / 1e9 + 0.5 + 5 * 4 * 128 * 128 / 1e12
    assert seconds(128, 128, 2**20, tiling) == pytest.approx(expected)

    tiling = replace(ONE_TILE, peak_shares={"128x128": 1.0, "32x32": 0.5})
    assert seconds(32, 32, 1000, tiling) == pytest.approx(2 * 32 * 32 * 1000 / 0.5e9)
    assert seconds(256, 256, 1000, tiling) == seconds(256, 256, 1000)


def test_products_know_their_flops_and_bytes_by_hand():
    products = Products(**numbers(m=2, n=3, k=5, count=7))
    np.testing.assert_array_equal(products.flops, [2 * 7 * 30])
    np.testing.assert_array_equal(products.size_bytes, [4 * 7 * (10 + 15 + 6)])
