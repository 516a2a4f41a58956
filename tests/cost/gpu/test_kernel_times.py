"""The constants that the package ships, on the GPUs that `hardware.toml` describes."""

import tomllib
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.gpu.assumed_times import family_bases
from placement_advisor.cost.gpu.kernel_times import (
    ALL_CHIPS,
    GRADIENTS,
    OPS,
    STRIDED_BY_INPUT,
    KernelBasis,
    kernel_cost,
    kernel_time,
    reached_bandwidth,
)
from placement_advisor.cost.table import ASSUMED_WITHIN, CostBasis
from placement_advisor.graph.op import DIMENSIONS, Arithmetic, Kernel, KernelFamily
from placement_advisor.machine.devices import Device
from placement_advisor.machine.gpu_facts import gpu_facts, gpus_with_facts

SHIPPED = tomllib.loads(
    (resources.files("placement_advisor.cost.gpu") / "kernel_times.toml").read_text("utf-8")
)
ON_RECORD = ("GP104", "GP100", "TU104", "GV100", "GA100")
GPUS = st.sampled_from(gpus_with_facts())
SIZES = st.integers(min_value=1, max_value=9_000)


def seconds(op, gpu, *dims):
    return kernel_time(op, dims, gpu_facts(gpu)).time_ns / 1e9


@pytest.mark.parametrize("op", OPS)
def test_every_op_has_constants_for_each_chip_of_the_record_and_errors(op):
    for chip in (*ON_RECORD, ALL_CHIPS):
        assert op in SHIPPED[chip]
    errors = SHIPPED["errors"][op]
    assert 0 < errors[KernelBasis.FITTED] < errors[KernelBasis.TRANSFERRED] < 0.5
    within = SHIPPED["within"][op]
    assert 1 < within[KernelBasis.FITTED] < within[KernelBasis.TRANSFERRED] < ASSUMED_WITHIN


def test_times_say_whose_constants_they_rest_on_and_other_ops_have_none():
    for gpu, basis in (
        ("T4", KernelBasis.FITTED),
        ("V100-SXM2", KernelBasis.FITTED),
        ("L4", KernelBasis.TRANSFERRED),
    ):
        time = kernel_time("linear", (1, 512, 512, 512), gpu_facts(gpu))
        assert (time.basis, time.within) == (CostBasis.KERNEL, SHIPPED["within"]["linear"][basis])

    with pytest.raises(KeyError, match="dropout"):
        kernel_time("dropout", (1, 1), gpu_facts("T4"))


@pytest.mark.parametrize("changed", [(1, 14, 1, 0), (3, 14, 2, 1), (7, 224, 2, 3)])
def test_convolutions_that_the_record_lacks_are_assumed(changed):
    time = kernel_time("conv", (32, 64, 64, *changed), gpu_facts("T4"))
    assert (time.basis, time.within) == (CostBasis.KERNEL_ASSUMED, None)
    known = kernel_time("conv", (32, 64, 64, 3, 14, 1, 1), gpu_facts("T4"))
    assert known.basis is CostBasis.KERNEL
    bases = family_bases(Device(name="a", kind="GPU", gpu="T4"))
    assert bases[KernelFamily.CONV] == (KernelBasis.FITTED, SHIPPED["errors"]["conv"]["fitted"])
    assert bases[KernelFamily.CONV_BY_INPUT] == (KernelBasis.ASSUMED, None)


def test_a_convolution_of_the_record_is_the_same_with_its_sizes_along_both_axes():
    for square, sizes in (
        ((32, 64, 96, 3, 14, 1, 1), (32, 64, 96, 3, 3, 14, 14, 14, 14, 1)),
        ((32, 3, 64, 7, 224, 2, 3), (32, 3, 64, 7, 7, 224, 224, 112, 112, 2)),
    ):
        facts = gpu_facts("V100-PCIe")
        assert kernel_time("conv", square, facts) == kernel_time("conv", sizes, facts)


@given(
    gpu=GPUS,
    filter_size=st.just(3) | st.integers(4, 20),
    batch=st.integers(1, 256),
    inputs=st.integers(1, 2_048),
    outputs=st.integers(1, 2_048),
    image=st.integers(20, 256),
)
def test_no_convolution_is_faster_than_its_limits(gpu, filter_size, batch, inputs, outputs, image):
    facts = gpu_facts(gpu)
    padding = 1 if filter_size == 3 else 0
    time_s = seconds("conv", gpu, batch, inputs, outputs, filter_size, image, 1, padding) + 1e-9
    result = image if padding else image - filter_size + 1
    # Winograd's 36 multiplications for 16 outputs, or complex products of four multiplications,
    # half of the frequencies, for each tile's outputs.
    tiles = [tile for tile in (16, 32) if tile > filter_size]
    by_tile = [tile * (tile // 2 + 1) * 4 / (tile - filter_size + 1) ** 2 for tile in tiles]
    for_each = [36 / 16] if filter_size == 3 else [filter_size**2, *by_tile]
    flops = 2 * batch * inputs * outputs * result**2 * min(for_each)
    moved = 4 * (
        batch * (inputs * image**2 + outputs * result**2) + filter_size**2 * inputs * outputs
    )
    assert time_s >= flops / facts.peak_flops_per_s
    assert time_s >= moved / facts.memory_bandwidth_bytes_per_s


@pytest.mark.parametrize("gpu", gpus_with_facts())
@pytest.mark.parametrize("filter_size", [3, 5])
def test_borders_between_algorithms_of_convolutions_are_no_jumps(gpu, filter_size):
    # Inputs are what products sum over: more of them cross no tile's border.
    inputs = [round(length) for length in np.geomspace(16, 2_048, 100)]
    times = np.array(
        [seconds("conv", gpu, 32, n, 128, filter_size, 28, 1, filter_size // 2) for n in inputs]
    )
    growth = times[1:] / times[:-1]
    assert (growth <= 1.1 * np.array(inputs[1:]) / np.array(inputs[:-1])).all()


@pytest.mark.parametrize("op", ["add", "mul", "relu", "tanh", "gelu", "softmax", "ln"])
@given(gpu=GPUS, rows=SIZES, length=SIZES)
def test_no_kernel_draws_more_than_the_nominal_bandwidth(op, gpu, rows, length):
    moved = 4 * rows * length * (3 if op in ("add", "mul") else 2)
    least_s = moved / gpu_facts(gpu).memory_bandwidth_bytes_per_s
    assert seconds(op, gpu, rows, length) + 1e-9 >= least_s


MATCHED = [
    (better, worse)
    for better in gpus_with_facts()
    for worse in gpus_with_facts()
    if better != worse and gpu_facts(worse).is_matched_by(gpu_facts(better))
]


def test_a_card_is_matched_by_one_that_is_no_worse_in_any_figure():
    assert ("RTX4090", "V100-SXM2") in MATCHED
    assert ("V100-SXM2", "V100-PCIe") in MATCHED
    # It has more multiprocessors, each of which is slower: 80 at 0.18 against 28 at 0.41 Tflop/s.
    assert ("V100-PCIe", "GTX1080Ti") not in MATCHED


@given(
    cards=st.sampled_from(MATCHED),
    family=st.sampled_from(KernelFamily),
    arithmetic=st.sampled_from(Arithmetic),
    sizes=st.lists(st.integers(min_value=1, max_value=600), min_size=10, max_size=10),
)
def test_no_kernel_takes_longer_on_a_card_that_is_worse_in_nothing(
    cards, family, arithmetic, sizes
):
    kernel = Kernel(family, tuple(sizes[: len(DIMENSIONS[family])]), arithmetic)
    better, worse = map(gpu_facts, cards)
    assert kernel_cost(kernel, better).time_ns <= kernel_cost(kernel, worse).time_ns
    assert reached_bandwidth(better) >= reached_bandwidth(worse)


# Numbers other than plain float32.
PRODUCT = (1, 4096, 4096, 4096)
# Half a tile more or less along m changes which kernel runs.
TWO_TILES = 256
# And so it does whether rows along k fill sectors, which is told in whole ones.
SECTOR = 8
ROWS = (4096, 4096)


def time(arithmetic, gpu, op="linear", dims=PRODUCT):
    return kernel_time(op, dims, gpu_facts(gpu), arithmetic)


def test_a_gpu_without_units_computes_the_default_in_float32():
    for gpu in ("P100-PCIe", "V100-PCIe", "T4"):
        plain = kernel_time("linear", PRODUCT, gpu_facts(gpu))
        assert time(Arithmetic.DEFAULT, gpu) == time(Arithmetic.FLOAT32, gpu) == plain


def test_a_product_alone_has_the_faster_kernel_and_on_units_that_of_single_ones():
    alone = Kernel(KernelFamily.BMM, (1, 16, 1024, 1024), Arithmetic.FLOAT32)
    for gpu, faster, slower in (("T4", "bmm", "linear"), ("V100-PCIe", "linear", "bmm")):
        time_ns = kernel_cost(alone, gpu_facts(gpu)).time_ns
        assert time_ns == time(Arithmetic.FLOAT32, gpu, faster, alone.dims).time_ns
        assert time_ns < time(Arithmetic.FLOAT32, gpu, slower, alone.dims).time_ns
    a100, alone = gpu_facts("A100-40GB-PCIe"), alone._replace(arithmetic=Arithmetic.DEFAULT)
    assert kernel_cost(alone, a100) == kernel_cost(alone._replace(family=KernelFamily.LINEAR), a100)


def test_gradients_by_the_input_take_longer_with_a_stride_where_no_units_do_them():
    dims = (8, 64, 128, 1, 1, 56, 56, 28, 28, 2)
    # In float16 units take channels last, so that nothing is transposed.
    for gpu, numbers, ratio in (
        ("T4", Arithmetic.DEFAULT, STRIDED_BY_INPUT),
        ("A100-40GB-PCIe", Arithmetic.FLOAT16, 1),
    ):
        kernel = Kernel(KernelFamily.CONV, dims, numbers)
        forward, by_input, by_filter = (
            kernel_cost(kernel._replace(family=family), gpu_facts(gpu)).time_ns
            for family in (KernelFamily.CONV, *sorted(GRADIENTS, reverse=True))
        )
        assert (by_input, by_filter) == (round(ratio * forward), forward)


def test_units_are_faster_and_assumed():
    for arithmetic, gpu in (
        (Arithmetic.DEFAULT, "A100-40GB-PCIe"),
        (Arithmetic.FLOAT16, "V100-PCIe"),
        (Arithmetic.BFLOAT16, "H100-SXM5"),
    ):
        found, plain = time(arithmetic, gpu), time(Arithmetic.FLOAT32, gpu)
        assert (found.basis, found.within) == (CostBasis.KERNEL_ASSUMED, None)
        assert found.time_ns < plain.time_ns / 3


def test_a_convolution_in_tf32_copies_what_it_reads_and_writes_and_one_in_halves_does_not():
    dims = (256, 1024, 1024, 1, 14, 1, 0)
    # Of the image, and as much of the result.
    copies_ns = 2 * time(Arithmetic.DEFAULT, "A100-40GB-PCIe", "relu", (256, 1024 * 14**2)).time_ns
    whole = time(Arithmetic.DEFAULT, "A100-40GB-PCIe", "conv", dims).time_ns
    half = time(Arithmetic.FLOAT16, "A100-40GB-PCIe", "conv", dims).time_ns
    # In halves, units take as many steps to fill, which are of half the length.
    assert whole - 2 * half == pytest.approx(copies_ns, rel=0.15)


def test_units_before_ampere_do_not_do_bfloat16():
    half, brain_half = (
        time(numbers, "V100-PCIe").time_ns for numbers in (Arithmetic.FLOAT16, Arithmetic.BFLOAT16)
    )
    assert brain_half > 4 * half


@pytest.mark.parametrize("op", ["relu", "add", "tanh"])
def test_kernels_that_move_memory_take_half_as_long_in_halves(op):
    whole = time(Arithmetic.DEFAULT, "A100-40GB-PCIe", op, ROWS)
    half = time(Arithmetic.FLOAT16, "A100-40GB-PCIe", op, ROWS)
    assert half.time_ns == pytest.approx(whole.time_ns / 2, rel=1e-3)
    assert (whole.basis, half.basis) == (CostBasis.KERNEL, CostBasis.KERNEL_ASSUMED)


def test_softmax_in_halves_moves_half_as_much_and_computes_as_much():
    whole = time(Arithmetic.DEFAULT, "A100-40GB-PCIe", "softmax", ROWS).time_ns
    half = time(Arithmetic.FLOAT16, "A100-40GB-PCIe", "softmax", ROWS).time_ns
    copied = time(Arithmetic.FLOAT16, "A100-40GB-PCIe", "relu", ROWS).time_ns
    assert whole - half == pytest.approx(copied, rel=0.1)


@given(
    gpu=GPUS,
    arithmetic=st.sampled_from(Arithmetic),
    count=st.integers(1, 64),
    sizes=st.tuples(SIZES, SIZES, SIZES),
)
def test_no_product_beats_the_peak_of_its_units_nor_its_bytes(gpu, arithmetic, count, sizes):
    m, k, n = sizes
    facts = gpu_facts(gpu)
    is_half = arithmetic in (Arithmetic.FLOAT16, Arithmetic.BFLOAT16)
    peak = max(
        facts.peak_flops_per_s, (facts.half_flops_per_s if is_half else facts.tf32_flops_per_s) or 0
    )
    moved = (2 if is_half else 4) * count * (m * k + k * n + m * n)
    for op in ("linear", "bmm"):
        time_s = time(arithmetic, gpu, op, (count, m, k, n)).time_ns / 1e9 + 1e-9
        assert time_s >= 2 * count * m * k * n / peak
        assert time_s >= moved / facts.memory_bandwidth_bytes_per_s


@given(
    gpu=GPUS,
    arithmetic=st.sampled_from(Arithmetic),
    sizes=st.tuples(SIZES, SIZES, SIZES),
    more=st.integers(1, 500),
)
def test_a_larger_product_on_units_never_takes_less(gpu, arithmetic, sizes, more):
    m, k, n = sizes
    for op in ("linear", "bmm"):
        time_ns = time(arithmetic, gpu, op, (1, m, k, n)).time_ns
        for larger in (
            (1 + more, m, k, n),
            (1, m + TWO_TILES, k, n),
            (1, m, k + SECTOR * more, n),
            (1, m, k, n + more),
        ):
            assert time(arithmetic, gpu, op, larger).time_ns >= time_ns


@given(
    gpu=GPUS,
    arithmetic=st.sampled_from(Arithmetic),
    filter_size=st.sampled_from((1, 3, 5, 7)),
    batch=st.integers(1, 256),
    inputs=st.integers(1, 2_048),
    outputs=st.integers(1, 2_048),
    image=st.integers(7, 256),
)
def test_a_larger_convolution_on_units_never_takes_less(
    gpu, arithmetic, filter_size, batch, inputs, outputs, image
):
    def time_ns(batch, inputs, outputs, image):
        dims = (batch, inputs, outputs, filter_size, image, 1, filter_size // 2)
        return time(arithmetic, gpu, "conv", dims).time_ns

    least_ns = time_ns(batch, inputs, outputs, image)
    assert time_ns(batch + 1, inputs, outputs, image) >= least_ns - 1
    assert time_ns(batch, inputs + 1, outputs, image) >= least_ns - 1
    assert time_ns(batch, inputs, outputs + 1, image) >= least_ns - 1
    assert time_ns(batch, inputs, outputs, image + 1) >= least_ns - 1


@pytest.mark.parametrize("gpu", gpus_with_facts())
@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_borders_between_compute_and_memory_are_no_jumps(gpu, arithmetic):
    # From a product that memory limits to one that computing does, without a border of a tile or
    # a sector.
    lengths = [SECTOR * round(length) for length in np.geomspace(8, 8_192, 100)]
    for op in ("linear", "bmm"):
        times = np.array(
            [time(arithmetic, gpu, op, (1, 1024, length, 1024)).time_ns for length in lengths]
        )
        growth = times[1:] / times[:-1]
        assert (growth <= 1.1 * np.array(lengths[1:]) / np.array(lengths[:-1])).all()
