from __future__ import annotations

import pytest
from signatures import UNKNOWN, ints, signature, tensor

from placement_advisor.graph.op import DIMENSIONS, Arithmetic, Kernel, KernelFamily
from placement_advisor.graph.op_work.kernels import kernel_of


def test_a_product_and_its_gradients_by_hand() -> None:
    forward = signature("MatMul", [tensor(4, 5), tensor(5, 6)], [tensor(4, 6)])
    assert kernel_of(forward) == Kernel(KernelFamily.LINEAR, (1, 4, 5, 6))
    by_weights = signature("MatMul", [tensor(4, 5), tensor(4, 6)], [tensor(5, 6)], transpose_a=True)
    assert kernel_of(by_weights) == Kernel(KernelFamily.LINEAR, (1, 5, 4, 6))
    by_input = signature("MatMul", [tensor(4, 6), tensor(5, 6)], [tensor(4, 5)], transpose_b=True)
    assert kernel_of(by_input) == Kernel(KernelFamily.LINEAR, (1, 4, 6, 5))


def test_a_batch_of_products_by_hand() -> None:
    sides = [tensor(2, 3, 5, 4), tensor(3, 5, 6)]
    found = kernel_of(signature("BatchMatMulV2", sides, [tensor(2, 3, 4, 6)], adj_x=True))
    assert found == Kernel(KernelFamily.BMM, (6, 4, 5, 6))


IMAGE, FILTER, RESULT = tensor(8, 30, 20, 3), tensor(1, 7, 3, 16), tensor(8, 15, 10, 16)
DIMS = (8, 3, 16, 1, 7, 30, 20, 15, 10, 2)


@pytest.mark.parametrize(
    ("kind", "inputs", "output"),
    [
        ("Conv2D", [IMAGE, FILTER], RESULT),
        ("Conv2DBackpropInput", [ints(4), FILTER, RESULT], IMAGE),
        ("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], FILTER),
    ],
)
def test_a_convolution_and_its_gradients_have_the_same_dimensions(
    kind: str, inputs: list, output: object
) -> None:
    found = kernel_of(signature(kind, inputs, [output], strides=[1, 2, 2, 1]))
    assert found is not None
    assert found.dims == DIMS
    assert len(DIMS) == len(DIMENSIONS[found.family])


def test_dimensions_do_not_depend_on_the_layout() -> None:
    found = kernel_of(
        signature(
            "Conv2D",
            [tensor(8, 3, 30, 20), FILTER],
            [tensor(8, 16, 15, 10)],
            strides=[1, 1, 2, 2],
            data_format="NCHW",
        )
    )
    assert found == Kernel(KernelFamily.CONV, DIMS)


def test_groups_and_dilations_are_not_covered() -> None:
    grouped = [tensor(8, 30, 20, 6), FILTER]
    assert kernel_of(signature("Conv2D", grouped, [RESULT], strides=[1, 2, 2, 1])) is None
    dilated = signature(
        "Conv2D", [IMAGE, FILTER], [RESULT], strides=[1, 1, 1, 1], dilations=[1, 2, 2, 1]
    )
    assert kernel_of(dilated) is None


def test_kinds_of_elements_and_rows_by_hand() -> None:
    x = tensor(4, 5, 6)
    assert kernel_of(signature("AddV2", [x, x], [x])) == Kernel(KernelFamily.ADD, (1, 120))
    assert kernel_of(signature("Relu", [x], [x])) == Kernel(KernelFamily.RELU, (1, 120))
    assert kernel_of(signature("Softmax", [x], [x])) == Kernel(KernelFamily.SOFTMAX, (20, 6))


def test_what_no_single_float32_kernel_does_is_not_covered() -> None:
    x = tensor(4, 5)
    assert kernel_of(signature("Mul", [x, tensor(5)], [x])) is None
    assert kernel_of(signature("Mul", [ints(4, 5), ints(4, 5)], [ints(4, 5)])) is None
    assert kernel_of(signature("Relu", [UNKNOWN], [UNKNOWN])) is None
    assert kernel_of(signature("MatMul", [tensor(0, 5), x], [tensor(0, 5)])) is None
    assert kernel_of(signature("MatMul", [tensor(2, 4, 5), x], [x])) is None
    assert kernel_of(signature("ReluGrad", [x, x], [x])) is None


def test_kernels_say_in_which_numbers_they_compute() -> None:
    x = tensor(4, 4)
    product, activation = signature("MatMul", [x, x], [x]), signature("Relu", [x], [x])
    plain = kernel_of(product, is_tf32_allowed=False)
    assert plain == Kernel(KernelFamily.LINEAR, (1, 4, 4, 4), Arithmetic.FLOAT32)
    assert kernel_of(activation, is_tf32_allowed=False) == kernel_of(activation)
    half = x._replace(dtype="bfloat16", item_bytes=2)
    found = kernel_of(signature("MatMul", [half, half], [half]), is_tf32_allowed=False)
    assert found == Kernel(KernelFamily.LINEAR, (1, 4, 4, 4), Arithmetic.BFLOAT16)
