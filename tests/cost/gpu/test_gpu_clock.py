from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import CLOCK, GPU

from placement_advisor.cost.gpu.kernel_times import kernel_time
from placement_advisor.cost.gpu.kernels import at_clock_s, with_fed_cores
from placement_advisor.machine.gpu_facts import gpu_facts

SLOT = replace(GPU, power_watts=70.0)


def test_a_card_on_the_slot_keeps_its_clock_in_short_kernels_and_half_in_long_ones_by_hand():
    short, middle, long = at_clock_s(np.array([1e-9, 1e-3, 1e3]), SLOT, CLOCK)
    assert short == pytest.approx(1e-9, rel=1e-5)
    assert middle == pytest.approx(1.5e-3)
    assert long == pytest.approx(2e3, rel=1e-5)

    ada = replace(SLOT, capability=8.9, power_watts=35.0)
    assert at_clock_s(np.array([1e3]), ada, CLOCK) == pytest.approx(1e3 / 0.75, rel=1e-5)
    assert at_clock_s(np.array([3.0]), GPU, CLOCK) == [3.0]


def test_no_kernel_is_done_before_a_shorter_one():
    boosted = np.geomspace(1e-6, 1e2, 500)
    assert (np.diff(at_clock_s(boosted, SLOT, CLOCK)) > 0).all()


def test_a_chip_before_maxwell_reaches_what_a_k40_did_and_later_ones_feed_their_cores():
    k40 = replace(GPU, capability=3.5, peak_flops_per_s=5.04e12, power_watts=235.0)
    half = replace(k40, power_watts=117.5)
    cool = replace(k40, peak_flops_per_s=2.52e12)
    for gpu, reached in ((k40, 3.2e12), (half, 1.6e12), (cool, 1.6e12)):
        assert 0.88 * with_fed_cores(gpu).peak_flops_per_s == pytest.approx(reached)

    assert with_fed_cores(GPU) is GPU


@pytest.mark.parametrize(("rows", "published"), [(2048, 3.16e12), (3072, 3.24e12), (4096, 3.28e12)])
def test_large_products_on_a_k40_take_what_was_published(rows, published):
    k40 = replace(
        gpu_facts("K80"),
        multiprocessors=15,
        peak_flops_per_s=5.04e12,
        memory_bandwidth_bytes_per_s=288e9,
        power_watts=235.0,
    )
    time_s = kernel_time("linear", (1, rows, rows, rows), k40).time_ns / 1e9
    assert 2 * rows**3 / time_s == pytest.approx(published, rel=0.15)
