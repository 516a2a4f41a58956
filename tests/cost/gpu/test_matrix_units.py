"""Numbers other than plain float32, on the GPUs that `hardware.toml` describes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.gpu.kernel_times import (
    GRADIENTS,
    STRIDED_BY_INPUT,
    kernel_cost,
    kernel_time,
)
from placement_advisor.cost.table import CostBasis
from placement_advisor.graph.op import Arithmetic, Kernel, KernelFamily
from placement_advisor.machine.gpu_facts import gpu_facts, gpus_with_facts

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
    assert (
        time(Arithmetic.BFLOAT16, "V100-PCIe").time_ns
        > 4 * time(Arithmetic.FLOAT16, "V100-PCIe").time_ns
    )


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
    gpu=st.sampled_from(gpus_with_facts()),
    arithmetic=st.sampled_from(Arithmetic),
    count=st.integers(1, 64),
    sizes=st.tuples(*[st.integers(1, 9_000)] * 3),
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
    gpu=st.sampled_from(gpus_with_facts()),
    arithmetic=st.sampled_from(Arithmetic),
    sizes=st.tuples(*[st.integers(1, 9_000)] * 3),
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
    gpu=st.sampled_from(gpus_with_facts()),
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
