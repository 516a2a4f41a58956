"""Kernels that move memory, and the clock at which kernels compute."""

from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import CLOCK, GPU

from placement_advisor.cost.gpu.kernel_times import kernel_time
from placement_advisor.cost.gpu.kernels import (
    HELD_ROW,
    NormalisationConstants,
    SoftmaxConstants,
    at_clock_s,
    elementwise_s,
    layer_norm_s,
    softmax_s,
    with_fed_cores,
)
from placement_advisor.machine.gpu_facts import gpu_facts

SOFTMAX = SoftmaxConstants(held=10, again=4, idle=9, row_elements=0, record_launch_s=0)
NORMALISATION = NormalisationConstants(
    held=1.2, again=0.8, cache_reach=1.0, idle=0, row_elements=0, record_launch_s=0
)


def softmax(rows, length, gpu=GPU):
    return float(softmax_s(np.array([rows]), np.array([length]), gpu, SOFTMAX, 1e9)[0])


def normalisation(rows, length):
    sizes = np.array([float(rows)]), np.array([float(length)])
    return float(layer_norm_s(*sizes, GPU, NORMALISATION, 1e9)[0])


def test_elementwise_kernels_move_inputs_and_result_by_hand():
    assert elementwise_s(np.array([1000]), 1, GPU, 0.8) == pytest.approx(8_000 / 0.8e9)
    assert elementwise_s(np.array([1000]), 2, GPU, 0.8) == pytest.approx(12_000 / 0.8e9)


def test_softmax_copies_its_tensor_and_computes_more_on_long_rows_by_hand():
    # 8 bytes at 1e9/s and instructions of two flop at 4e9/s for an element.
    assert softmax(100, 512) == pytest.approx(100 * 512 * (8e-9 + 10 * 0.5e-9))
    # 2048 elements are two steps of 256 threads with four each: none is idle.
    assert softmax(100, 2048) == pytest.approx(100 * 2048 * (8e-9 + 14 * 0.5e-9))


def test_cores_without_units_for_integers_take_twice_as_long_to_compute_by_hand():
    pascal = replace(GPU, capability=6.0)
    assert softmax(100, 512, pascal) == pytest.approx(100 * 512 * (8e-9 + 10 * 1e-9))


def test_threads_without_an_element_are_idle_by_hand():
    # 1536 elements are two steps of 256 threads with four each: a third more than there are.
    instructions = 14 + 9 * (1 / 3) ** 2
    assert softmax(100, 1536) == pytest.approx(100 * 1536 * (8e-9 + instructions * 0.5e-9))


def test_rows_that_overflow_the_cache_are_read_from_memory_again():
    # 64 rows in flight: 2 kB each fit into 1 MB, 64 kB each do not.
    assert normalisation(100, 512) == pytest.approx(1.2 * 8 * 100 * 512 / 1e9, rel=0.01)
    assert normalisation(100, 16_384) == pytest.approx(2.0 * 8 * 100 * 16_384 / 1e9, rel=0.01)


@pytest.mark.parametrize("length", [1, 100, HELD_ROW, HELD_ROW + 1, 5000])
def test_nothing_is_faster_than_copying_the_tensor_and_twice_the_rows_take_twice(length):
    for time_s in (softmax, normalisation):
        assert time_s(100, length) >= 8 * 100 * length / 1e9
        assert time_s(200, length) == pytest.approx(2 * time_s(100, length))


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
