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
    OPS,
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
def test_a_convolution_is_no_faster_than_its_limits(
    gpu, filter_size, batch, inputs, outputs, image
):
    facts = gpu_facts(gpu)
    padding = 1 if filter_size == 3 else 0
    time_s = seconds("conv", gpu, batch, inputs, outputs, filter_size, image, 1, padding) + 1e-9
    result = image if padding else image - filter_size + 1
    # Winograd's 36 multiplications for 16 outputs, or complex products of four multiplications,
    # half of the frequencies, for each tile's outputs.
    for_each = (
        [36 / 16]
        if filter_size == 3
        else [filter_size**2]
        + [
            tile * (tile // 2 + 1) * 4 / (tile - filter_size + 1) ** 2
            for tile in (16, 32)
            if tile > filter_size
        ]
    )
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
def test_no_kernel_takes_longer_on_a_card_that_is_no_worse_in_any_figure(
    cards, family, arithmetic, sizes
):
    kernel = Kernel(family, tuple(sizes[: len(DIMENSIONS[family])]), arithmetic)
    better, worse = map(gpu_facts, cards)
    assert kernel_cost(kernel, better).time_ns <= kernel_cost(kernel, worse).time_ns
    assert reached_bandwidth(better) >= reached_bandwidth(worse)
