"""Numbers other than plain float32, on the GPUs that `hardware.toml` describes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.gpu.kernel_times import KernelBasis, KernelTime, kernel_time
from placement_advisor.cost.gpu.matrix_units import time_in
from placement_advisor.graph.op_work.kernels import Arithmetic
from placement_advisor.machine.gpu_facts import gpu_facts, gpus_with_facts

PRODUCT = (1, 4096, 4096, 4096)
ROWS = (4096, 4096)


def time(
    arithmetic: Arithmetic, gpu: str, op: str = "linear", dims: tuple[int, ...] = PRODUCT
) -> KernelTime:
    return time_in(arithmetic, op, dims, gpu_facts(gpu))


def test_a_gpu_without_units_computes_the_default_in_float32() -> None:
    for gpu in ("P100-PCIe", "V100-PCIe", "T4"):
        plain = kernel_time("linear", PRODUCT, gpu_facts(gpu))
        assert time(Arithmetic.DEFAULT, gpu) == time(Arithmetic.FLOAT32, gpu) == plain


def test_units_are_faster_and_assumed() -> None:
    for arithmetic, gpu in (
        (Arithmetic.DEFAULT, "A100-40GB-PCIe"),
        (Arithmetic.FLOAT16, "V100-PCIe"),
        (Arithmetic.BFLOAT16, "H100-SXM5"),
    ):
        found, plain = time(arithmetic, gpu), time(Arithmetic.FLOAT32, gpu)
        assert (found.basis, found.within) == (KernelBasis.ASSUMED, None)
        assert found.time_ns < plain.time_ns / 3


def test_units_before_ampere_do_not_do_bfloat16() -> None:
    assert (
        time(Arithmetic.BFLOAT16, "V100-PCIe").time_ns
        > 4 * time(Arithmetic.FLOAT16, "V100-PCIe").time_ns
    )


@pytest.mark.parametrize("op", ["relu", "add", "softmax"])
def test_kernels_that_move_memory_take_half_as_long_in_halves(op: str) -> None:
    whole = time(Arithmetic.DEFAULT, "A100-40GB-PCIe", op, ROWS)
    half = time(Arithmetic.FLOAT16, "A100-40GB-PCIe", op, ROWS)
    assert half.time_ns == pytest.approx(whole.time_ns / 2, rel=1e-3)
    assert (whole.basis, half.basis) == (KernelBasis.FITTED, KernelBasis.ASSUMED)


@given(
    gpu=st.sampled_from(gpus_with_facts()),
    arithmetic=st.sampled_from(Arithmetic),
    sizes=st.tuples(*[st.integers(1, 9_000)] * 3),
)
def test_no_product_beats_the_peak_of_its_units_nor_its_bytes(
    gpu: str, arithmetic: Arithmetic, sizes: tuple[int, int, int]
) -> None:
    m, k, n = sizes
    facts = gpu_facts(gpu)
    is_half = arithmetic in (Arithmetic.FLOAT16, Arithmetic.BFLOAT16)
    peak = max(
        facts.peak_flops_per_s,
        (facts.half_flops_per_s if is_half else facts.tf32_flops_per_s) or 0,
    )
    time_s = time(arithmetic, gpu, dims=(1, m, k, n)).time_ns / 1e9 + 1e-9
    moved = (2 if is_half else 4) * (m * k + k * n + m * n)
    assert time_s >= 2 * m * k * n / peak
    assert time_s >= moved / facts.memory_bandwidth_bytes_per_s
