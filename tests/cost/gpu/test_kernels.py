"""Times of kernels by hand, on a GPU of round numbers."""

from dataclasses import replace

import numpy as np
import pytest

from placement_advisor.cost.gpu.kernel_times import kernel_time
from placement_advisor.cost.gpu.kernels import (
    HELD_ROW,
    Clock,
    ConvolutionConstants,
    Convolutions,
    NormalisationConstants,
    ProductConstants,
    Products,
    SoftmaxConstants,
    Tiling,
    at_clock_s,
    convolution_s,
    elementwise_s,
    layer_norm_s,
    product_s,
    softmax_s,
    tiled_s,
    with_fed_cores,
)
from placement_advisor.machine.gpu_facts import GpuFacts, gpu_facts

GPU = GpuFacts(
    chip="round",
    capability=7.0,
    multiprocessors=4,
    peak_flops_per_s=4e9,
    memory_bandwidth_bytes_per_s=1e9,
    memory="HBM2",
    l2_bytes=1_000_000,
    power_watts=250.0,
    base_clock_mhz=1000,
    boost_clock_mhz=1200,
)
CLOCK = Clock(sustained_flops_per_joule=2e9 / 70, sustained_after_s=1e-3)
# Fine tiles at peak, nothing beside.
IDEAL = Tiling(peak_shares={"1x1": 1.0}, filling_k=0, single_tile=0, adding_up_s=1.0)
FAST = 1e18


def numbers(**sizes):
    """Return each size as the array of one kernel."""
    return {name: np.array([size], dtype=np.float64) for name, size in sizes.items()}


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


def product(constants=PLAIN, bandwidth=FAST, *, gpu=GPU, has_weights=True, **changes):
    products = Products(**numbers(**({"m": 1024, "n": 1024, "k": 1024, "count": 1} | changes)))
    return float(product_s(products, gpu, constants, bandwidth, has_weights=has_weights)[0])


def test_an_ideal_product_runs_at_peak_by_hand():
    assert product() == pytest.approx(2 * 1024**3 / 4e9)


@pytest.mark.parametrize(
    ("scattered", "has_weights", "read"),
    # Right operands that are no weights are read in long pieces.
    [(0, True, 2 * 1024), (2, True, 3 * 2 * 1024), (2, False, 3 * 1024 + 1024)],
)
def test_a_product_of_many_bytes_takes_their_time_by_hand(scattered, has_weights, read):
    constants = replace(PLAIN, scattered=scattered)
    found = product(constants, bandwidth=1.0, has_weights=has_weights, k=1)
    assert found == pytest.approx(4 * (1024 * 1024 + read))


@pytest.mark.parametrize(("k", "share"), [(2**17, 0), (2**17 + 4, 0.5), (2**17 + 1, 0.875)])
def test_pieces_in_two_sectors_are_read_again_by_hand(k, share):
    read_s = 4 * 16 * 16 * 64 * k / 1e9
    straddling = replace(PLAIN, straddling=0.5)
    expected_s = product(bandwidth=1e9, k=k) + 0.5 * share * read_s
    assert product(straddling, bandwidth=1e9, k=k) == pytest.approx(expected_s, rel=1e-3)


def test_a_card_on_the_slot_keeps_the_clock_of_its_memory():
    # A product of one step moves bytes, one of many computes: here twice as long as elsewhere.
    slot = replace(GPU, power_watts=70.0)
    assert product(gpu=slot, bandwidth=1.0, k=1) == pytest.approx(product(bandwidth=1.0, k=1))
    assert product(gpu=slot, k=2**20) == pytest.approx(2 * product(k=2**20), rel=1e-3)


def test_writing_the_result_comes_on_top_by_hand():
    computing_s = 2 * 1024**2 * 1e6 / 4e9 + 0.5 * 4 * 1024**2 / 1e8
    read_s = 4 * (1024**2 + 2 * 1024e6) / 1e8
    found = product(replace(PLAIN, writing=0.5), bandwidth=1e8, k=10**6)
    assert found == pytest.approx((computing_s**3 + read_s**3) ** (1 / 3))


def test_far_rows_cost_more_for_each_doubling_of_k_by_hand():
    constants = replace(PLAIN, far_rows=0.4)
    # log2(1 + (2^20 / 1000)^2) / 2 doublings, for all but few of the rows; 16 x 16 tiles of 64
    # rows, each of which reads 64 columns of weights.
    read_s = 4 * 16 * 16 * 64 * 2**20 / 1e6
    again_s = 0.4 * 10.0344 * 1024 / (1024 + 150) * read_s
    at_peak_s = 2 * 1024**2 * 2**20 / 4e9
    expected_s = ((at_peak_s + again_s) ** 3 + (4 * (2**31 + 2**20) / 1e6) ** 3) ** (1 / 3)
    assert product(constants, bandwidth=1e6, k=2**20) == pytest.approx(expected_s, rel=1e-3)
    near_s = product(bandwidth=1e9, k=10)
    assert product(constants, bandwidth=1e9, k=10) == pytest.approx(near_s, rel=1e-3)


def test_half_a_tile_along_m_costs_more_by_hand():
    constants = replace(PLAIN, half_tiles=1.0)
    whole, half = {"m": 1024, "k": 10**5}, {"m": 1024 + 64, "k": 10**5}
    assert product(constants, bandwidth=1e9, **whole) == product(bandwidth=1e9, **whole)
    expected_s = product(bandwidth=1e9, **half) + 4 * 17 * 16 * 64 * 10**5 / 1e9
    assert product(constants, bandwidth=1e9, **half) == pytest.approx(expected_s, rel=1e-3)


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


def convolution(constants, bandwidth=FAST, **changes):
    return float(convolution_s(shape(**changes), GPU, constants, bandwidth)[0])


def test_the_direct_algorithm_multiplies_once_for_each_tap_of_any_filter_by_hand():
    assert convolution(DIRECT) == pytest.approx(2 * 4 * 16 * 32 * 9 * 64 / 4e9)
    assert convolution(DIRECT, stride=2) == pytest.approx(2 * 4 * 16 * 32 * 9 * 16 / 4e9)
    assert convolution(DIRECT, filter_size=1) == pytest.approx(2 * 4 * 16 * 32 * 64 / 4e9)
    wide = replace(shape(), filter_height=np.array([1.0]), filter_width=np.array([7.0]))
    time_s = convolution_s(wide, GPU, replace(DIRECT, f2=IDEAL, f4=IDEAL), FAST)
    assert time_s == pytest.approx(2 * 4 * 16 * 32 * 7 * 64 / 4e9)


def test_a_single_tile_of_a_plain_product_costs_less_than_of_an_unfolded_image():
    alone = replace(DIRECT, direct=replace(IDEAL, single_tile=1e6))
    assert convolution(alone) > 100 * convolution(DIRECT)
    assert convolution(alone, filter_size=1) <= 2 * convolution(DIRECT, filter_size=1)


def test_winograd_counts_its_own_flops_and_pads_the_image_to_its_tiles_by_hand():
    direct_s = convolution(DIRECT)
    f2 = replace(DIRECT, direct=NO_TILING, f2=IDEAL)
    f4 = replace(DIRECT, direct=NO_TILING, f4=IDEAL)
    assert convolution(f2) == pytest.approx(direct_s * 16 / (4 * 9))
    assert convolution(f4) == pytest.approx(direct_s * 36 / (16 * 9))

    assert convolution(f4, image=5) == convolution(f4, image=8)
    assert convolution(f4, image=9) == pytest.approx(convolution(f4, image=8) * 9 / 4)


@pytest.mark.parametrize(
    "changes", [{"stride": 2}, {"filter_size": 2}, {"filter_size": 5, "stride": 2}]
)
def test_other_filters_and_strides_have_the_direct_algorithm_alone(changes):
    all_algorithms = replace(DIRECT, f2=IDEAL, f4=IDEAL)
    assert convolution(all_algorithms, **changes) == convolution(DIRECT, **changes)


def test_fft_multiplies_the_frequencies_of_tiles_by_hand():
    fft = replace(DIRECT, direct=NO_TILING, f4=IDEAL)
    # 16x16 elements have 16 x 9 frequencies, of 4 multiplications each, and 12x12 outputs.
    tile_s = 2 * 4 * 16 * 9 * 4 * 16 * 32 / 4e9
    assert convolution(fft, filter_size=5, image=12) == pytest.approx(tile_s)
    # One tile of 32x32 has 28x28 outputs, and fewer frequencies than four of 16x16.
    for image in (13, 28):
        larger_s = convolution(fft, filter_size=5, image=image)
        assert larger_s == pytest.approx(tile_s * (32 * 17) / (16 * 9))
    assert convolution(fft, filter_size=5, image=30) == pytest.approx(9 * tile_s)


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
    found = convolution(constants, bandwidth=1e6, filter_size=filter_size)
    assert found == pytest.approx(3 + computing + moving)


def test_the_fastest_algorithm_is_taken_and_none_is_faster_than_its_bytes():
    assert convolution(replace(DIRECT, f2=IDEAL)) < convolution(DIRECT)
    assert convolution(replace(DIRECT, f2=IDEAL, f4=IDEAL)) < convolution(replace(DIRECT, f2=IDEAL))

    size = 4 * (4 * 64 * (16 + 32) + 9 * 16 * 32)
    for fastest in ({"direct": IDEAL}, {"f2": IDEAL}, {"f4": IDEAL}):
        constants = replace(DIRECT, **({"direct": NO_TILING} | fastest))
        assert convolution(constants, bandwidth=100) == pytest.approx(size / 100)
