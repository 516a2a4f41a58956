from __future__ import annotations

import pytest
from signatures import TABLE, UNKNOWN, VARIANT, counts, ints, tensor, variable, work

from placement_advisor.graph.op_work import elementwise
from placement_advisor.graph.op_work.signature import WorkBasis

X = tensor(10, 100)


def test_an_addition_is_one_flop_per_result_and_reads_a_broadcast_side_once_by_hand() -> None:
    # 1,000 sums; 1,000 + 100 floats in, 1,000 out.
    assert counts("AddV2", [X, tensor(100)], [X]) == (1_000, 4 * 2_100)


def test_adding_many_tensors_adds_one_time_less_than_there_are() -> None:
    assert counts("AddN", [X, X, X], [X]) == (2_000, 4 * 4_000)


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        ("Relu", 1),
        ("Tanh", elementwise.TANH),
        ("Exp", elementwise.EXP),
        ("Erf", elementwise.ERF),
        ("Sigmoid", elementwise.SIGMOID),
        ("_MklSwish", elementwise.SIGMOID + 1),
        ("Sqrt", elementwise.SQRT),
        ("Cast", 1),
    ],
)
def test_a_function_of_an_element_takes_its_own_arithmetic(kind: str, flops: int) -> None:
    assert counts(kind, [X], [X]) == (1_000 * flops, 8_000)


def test_the_gradient_of_tanh_is_three_flops() -> None:
    # dy · (1 - y²): two products and a difference; two tensors in, one out.
    assert counts("TanhGrad", [X, X], [X]) == (3_000, 12_000)


def test_a_chain_of_unary_ops_adds_up() -> None:
    found = counts("_UnaryOpsComposition", [X], [X], op_names=["Relu", "Tanh"])
    assert found == (1_000 * (1 + elementwise.TANH), 8_000)


def test_a_softmax_exponentiates_every_logit() -> None:
    # Maximum, difference, sum and product: 4; the exponential.
    assert counts("Softmax", [X], [X]) == (1_000 * (4 + elementwise.EXP), 8_000)


def test_the_loss_puts_out_the_gradient_too() -> None:
    found = counts("SoftmaxCrossEntropyWithLogits", [X, X], [tensor(10), X])
    assert found == (1_000 * (8 + elementwise.EXP), 4 * (3_000 + 10))
    sparse = counts("SparseSoftmaxCrossEntropyWithLogits", [X, ints(10)], [tensor(10), X])
    assert sparse[1] == 4 * (2_000 + 20)


def test_a_reduction_adds_every_input_once() -> None:
    assert counts("Sum", [X, ints()], [tensor(10)]) == (1_000, 4 * (1_000 + 1 + 10))
    assert counts("Mean", [X, ints()], [tensor(10)])[0] == 1_000 + 10 * elementwise.DIVIDE


def test_the_largest_few_take_a_comparison_each_and_insertions() -> None:
    # 1,000 comparisons, and 10 rows of 8 insertions into a heap of 8: log2(8) = 3 steps.
    found = counts("TopKV2", [X, ints()], [tensor(10, 8), ints(10, 8)])
    assert found[0] == 1_000 + 10 * 8 * 3


def test_moving_kinds_compute_nothing_and_read_what_they_write() -> None:
    assert counts("Transpose", [X, ints(2)], [tensor(100, 10)]) == (0, 8_008)
    assert counts("ConcatV2", [X, X, ints()], [tensor(20, 100)]) == (0, 4 * 4_001)


def test_a_slice_reads_only_its_part() -> None:
    found = counts("StridedSlice", [X, ints(2), ints(2), ints(2)], [tensor(10, 5)])
    assert found == (0, 2 * 4 * 50)


def test_the_gradient_of_a_slice_fills_the_whole_with_zeros_first() -> None:
    inputs = [ints(2), ints(2), ints(2), ints(2), tensor(10, 5)]
    assert counts("StridedSliceGrad", inputs, [X]) == (0, 4_000 + 2 * 200)


def test_a_fill_reads_nothing() -> None:
    assert counts("Fill", [ints(2), tensor()], [X]) == (0, 4_000)


@pytest.mark.parametrize(
    "kind",
    ["Reshape", "Identity", "ReadVariableOp", "Shape", "NoOp", "Const", "VarHandleOp",
     "TensorListGetItem", "TensorListSetItem", "StopGradient", "_Arg", "_Send"],
)  # fmt: skip
def test_bookkeeping_costs_nothing_even_where_sizes_are_unknown(kind: str) -> None:
    assert counts(kind, [TABLE, UNKNOWN], [UNKNOWN]) == (0, 0)


def test_stacking_a_list_copies_it() -> None:
    assert counts("TensorListStack", [VARIANT, ints(1)], [X]) == (0, 8_000)
    assert counts("TensorListFromTensor", [X, ints(1)], [VARIANT]) == (0, 8_000)


def test_a_random_number_takes_its_share_of_the_generator() -> None:
    # Philox: 10 rounds of 10 operations give four numbers, 25 each; 5 to make a float of one.
    inputs = [ints(2), tensor(1, dtype="int64"), tensor(2, dtype="int64"), ints()]
    assert counts("StatelessRandomUniformV2", inputs, [X]) == (30_000, 4_000)
    normal, _ = counts("StatelessRandomNormalV2", inputs, [X])
    assert normal is not None
    assert normal > 30_000


def test_resizing_interpolates_every_new_pixel() -> None:
    found = counts("ResizeBilinear", [tensor(1, 4, 4, 3), ints(2)], [tensor(1, 8, 8, 3)])
    assert found == (192 * 13, 4 * (48 + 2 + 192))


@pytest.mark.parametrize(
    ("kind", "flops"),
    [
        ("Cholesky", 2 * 300**3 // 3),
        ("MatrixInverse", 2 * 2 * 300**3),
        ("MatrixDeterminant", 2 * 2 * 300**3 // 3),
    ],
)
def test_factorisations_take_the_textbook_count(kind: str, flops: int) -> None:
    matrices = tensor(2, 300, 300)
    assert counts(kind, [matrices], [matrices])[0] == flops


def test_a_fourier_transform_takes_five_n_log_n() -> None:
    signal = tensor(3, 1024, dtype="complex64")
    assert counts("FFT", [signal], [signal]) == (3 * 5 * 1024 * 10, 2 * 8 * 3 * 1024)


def test_a_kind_without_a_formula_has_the_bytes_of_its_tensors_and_unknown_flops() -> None:
    found = work("SomebodysOwnOp", [X, X], [X])
    assert (found.flops, found.bytes_accessed, found.basis) == (None, 12_000, WorkBasis.SIZES)


def test_a_kind_without_a_formula_may_read_the_variable_that_it_is_given() -> None:
    assert counts("SomebodysOwnOp", [variable(25)], [X]) == (None, 100 + 4_000)
    assert counts("SomebodysOwnOp", [TABLE], [X]) == (None, None)
