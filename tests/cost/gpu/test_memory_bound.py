from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import GPU

from placement_advisor.cost.gpu.kernels import (
    HELD_ROW,
    NormalisationConstants,
    SoftmaxConstants,
    elementwise_s,
    layer_norm_s,
    softmax_s,
)

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
