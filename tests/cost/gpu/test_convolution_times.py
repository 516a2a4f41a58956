from dataclasses import replace

import numpy as np
import pytest
from gpu_samples import CLOCK, GPU, IDEAL, numbers

from placement_advisor.cost.gpu.kernels import ConvolutionConstants, Convolutions, convolution_s

NO_TILING = replace(IDEAL, peak_shares={"1x1": 1e-6})
DIRECT = ConvolutionConstants(
    direct=IDEAL,
    f2=NO_TILING,
    f4=NO_TILING,
    clock=CLOCK,
    reading=0,
    f2_filter=0,
    f4_filter=0,
    f4_images=0,
    f4_start_s=0,
    record_launch_s=0,
)
FAST = 1e18


def shape(*, filter_size=3, image=8, stride=1):
    """Return a square convolution, padded so that strides of 1 keep the size."""
    return Convolutions(
        **numbers(
            batch=4,
            inputs=16,
            outputs=32,
            filter_height=filter_size,
            filter_width=filter_size,
            image_height=image,
            image_width=image,
            result_height=-(-image // stride),
            result_width=-(-image // stride),
            stride=stride,
        )
    )


def seconds(constants, bandwidth=FAST, **changes):
    return float(convolution_s(shape(**changes), GPU, constants, bandwidth)[0])


def test_the_direct_algorithm_multiplies_once_for_each_tap_of_any_filter_by_hand():
    assert seconds(DIRECT) == pytest.approx(2 * 4 * 16 * 32 * 9 * 64 / 4e9)
    assert seconds(DIRECT, stride=2) == pytest.approx(2 * 4 * 16 * 32 * 9 * 16 / 4e9)
    assert seconds(DIRECT, filter_size=1) == pytest.approx(2 * 4 * 16 * 32 * 64 / 4e9)
    wide = replace(shape(), filter_height=np.array([1.0]), filter_width=np.array([7.0]))
    time_s = convolution_s(wide, GPU, replace(DIRECT, f2=IDEAL, f4=IDEAL), FAST)
    assert time_s == pytest.approx(2 * 4 * 16 * 32 * 7 * 64 / 4e9)


def test_a_single_tile_of_a_plain_product_costs_less_than_of_an_unfolded_image():
    alone = replace(DIRECT, direct=replace(IDEAL, single_tile=1e6))
    assert seconds(alone) > 100 * seconds(DIRECT)
    assert seconds(alone, filter_size=1) <= 2 * seconds(DIRECT, filter_size=1)


def test_winograd_counts_its_own_flops_and_pads_the_image_to_its_tiles_by_hand():
    direct_s = seconds(DIRECT)
    f2 = replace(DIRECT, direct=NO_TILING, f2=IDEAL)
    f4 = replace(DIRECT, direct=NO_TILING, f4=IDEAL)
    assert seconds(f2) == pytest.approx(direct_s * 16 / (4 * 9))
    assert seconds(f4) == pytest.approx(direct_s * 36 / (16 * 9))

    assert seconds(f4, image=5) == seconds(f4, image=8)
    assert seconds(f4, image=9) == pytest.approx(seconds(f4, image=8) * 9 / 4)


@pytest.mark.parametrize(
    "changes", [{"stride": 2}, {"filter_size": 2}, {"filter_size": 5, "stride": 2}]
)
def test_other_filters_and_strides_have_the_direct_algorithm_alone(changes):
    all_algorithms = replace(DIRECT, f2=IDEAL, f4=IDEAL)
    assert seconds(all_algorithms, **changes) == seconds(DIRECT, **changes)


def test_fft_multiplies_the_frequencies_of_tiles_by_hand():
    fft = replace(DIRECT, direct=NO_TILING, f4=IDEAL)
    # 16x16 elements have 16 x 9 frequencies, of 4 multiplications each, and 12x12 outputs.
    tile_s = 2 * 4 * 16 * 9 * 4 * 16 * 32 / 4e9
    assert seconds(fft, filter_size=5, image=12) == pytest.approx(tile_s)
    # One tile of 32x32 has 28x28 outputs, and fewer frequencies than four of 16x16.
    for image in (13, 28):
        larger_s = seconds(fft, filter_size=5, image=image)
        assert larger_s == pytest.approx(tile_s * (32 * 17) / (16 * 9))
    assert seconds(fft, filter_size=5, image=30) == pytest.approx(9 * tile_s)


@pytest.mark.parametrize(
    ("filter_size", "numbers", "products"),
    [
        (3, 4 * 36, 36 * (4 * 4)),  # Winograd's: four tiles of 36 numbers for each channel.
        (5, 2 * 16 * 9, 4 * 16 * 9 * 4),  # Frequencies: one tile of complex numbers.
    ],
)
def test_what_is_transformed_goes_through_memory_by_hand(filter_size, numbers, products):
    constants = replace(DIRECT, direct=NO_TILING, f4=IDEAL, f4_images=1, f4_filter=1, f4_start_s=3)
    taps = filter_size**2
    images = 4 * (4 * 64 * (16 + 32) + taps * 16 * 32) + 2 * 4 * numbers * 4 * (16 + 32)
    of_filter = numbers if filter_size == 5 else numbers / 4
    transformed_filter = 4 * 16 * 32 * (taps + 2 * of_filter)
    computing = 2 * products * 16 * 32 / 4e9
    moving = (images + transformed_filter) / 1e6
    found = seconds(constants, bandwidth=1e6, filter_size=filter_size)
    assert found == pytest.approx(3 + computing + moving)


def test_the_fastest_algorithm_is_taken_and_none_is_faster_than_its_bytes():
    assert seconds(replace(DIRECT, f2=IDEAL)) < seconds(DIRECT)
    assert seconds(replace(DIRECT, f2=IDEAL, f4=IDEAL)) < seconds(replace(DIRECT, f2=IDEAL))

    size = 4 * (4 * 64 * (16 + 32) + 9 * 16 * 32)
    for fastest in ({"direct": IDEAL}, {"f2": IDEAL}, {"f4": IDEAL}):
        constants = replace(DIRECT, **({"direct": NO_TILING} | fastest))
        assert seconds(constants, bandwidth=100) == pytest.approx(size / 100)
