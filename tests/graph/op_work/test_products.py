from __future__ import annotations

import pytest
from signatures import UNKNOWN, counts, ints, tensor

from placement_advisor.graph.op_work.elementwise import SIGMOID, TANH


def test_a_matmul_multiplies_and_adds_once_per_row_column_and_inner_index_by_hand() -> None:
    # (2 × 3) · (3 × 5): 2·5 results, 3 multiply-adds each; 6 + 15 + 10 floats of 4 bytes.
    flops, size = counts("MatMul", [tensor(2, 3), tensor(3, 5)], [tensor(2, 5)])
    assert flops == 2 * 2 * 3 * 5 == 60
    assert size == 4 * (6 + 15 + 10) == 124


def test_a_transposed_left_side_sums_over_its_rows() -> None:
    inputs = [tensor(3, 2), tensor(3, 5)]
    assert counts("MatMul", inputs, [tensor(2, 5)], transpose_a=True)[0] == 60
    batch = [tensor(7, 3, 2), tensor(7, 3, 5)]
    assert counts("BatchMatMulV2", batch, [tensor(7, 2, 5)], adj_x=True)[0] == 7 * 60


def test_a_batch_of_products_counts_each_and_a_broadcast_side_is_read_once() -> None:
    inputs = [tensor(8, 12, 128, 64), tensor(1, 1, 64, 128)]
    flops, size = counts("BatchMatMulV2", inputs, [tensor(8, 12, 128, 128)])
    assert flops == 2 * 8 * 12 * 128 * 128 * 64
    assert size == 4 * (8 * 12 * 128 * 64 + 64 * 128 + 8 * 12 * 128 * 128)


@pytest.mark.parametrize("prefix", ["_", "_Mkl", "_MklNative"])
def test_what_is_fused_behind_a_product_counts_per_element(prefix: str) -> None:
    # 60 for the product, and per element of 10: bias 1, tanh.
    inputs = [tensor(2, 3), tensor(3, 5), tensor(5)]
    fused = {"fused_ops": ["BiasAdd", "Tanh"]}
    flops, size = counts(f"{prefix}FusedMatMul", inputs, [tensor(2, 5)], **fused)
    assert flops == 60 + 10 * (1 + TANH)
    assert size == 124 + 4 * 5


def test_flops_of_an_unheard_of_fusion_are_unknown_but_its_bytes_are_not() -> None:
    inputs = [tensor(2, 3), tensor(3, 5), tensor(5)]
    found = counts("_FusedMatMul", inputs, [tensor(2, 5)], fused_ops=["FourierBessel"])
    assert found == (None, 144)


def test_an_einsum_that_is_a_matmul_costs_like_one() -> None:
    # abc,cde->abde: a dense layer on (8, 128, 768) with 12 heads of 64; all is in order already.
    inputs = [tensor(8, 128, 768), tensor(768, 12, 64)]
    flops, size = counts("Einsum", inputs, [tensor(8, 128, 12, 64)], equation="abc,cde->abde")
    assert flops == 2 * (8 * 128) * 768 * (12 * 64)
    assert size == 4 * (8 * 128 * 768 + 768 * 12 * 64 + 8 * 128 * 12 * 64)


def test_an_einsum_passes_again_over_what_it_must_reorder() -> None:
    # aecd,abcd->acbe: batch a, c, then b or e, then d: both operands are out of order, as c stands
    # behind e and b; the product comes out as a c e b, and b and e change places.
    keys, queries, scores = tensor(2, 7, 3, 5), tensor(2, 11, 3, 5), tensor(2, 3, 11, 7)
    flops, size = counts("Einsum", [keys, queries], [scores], equation="aecd,abcd->acbe")
    assert flops == 2 * (2 * 3) * 11 * 7 * 5
    assert size == 3 * 4 * (2 * 7 * 3 * 5 + 2 * 11 * 3 * 5 + 2 * 3 * 11 * 7)


def test_an_einsum_without_a_sum_only_multiplies() -> None:
    found = counts("Einsum", [tensor(3), tensor(5)], [tensor(3, 5)], equation="i,j->ij")
    assert found[0] == 15


def test_an_einsum_of_one_operand_adds_what_it_sums() -> None:
    assert counts("Einsum", [tensor(3, 5)], [tensor(3)], equation="ij->i")[0] == 15
    assert counts("Einsum", [tensor(3, 5)], [tensor(5, 3)], equation="ij->ji")[0] == 0


def test_an_ellipsis_stands_for_all_dimensions_that_it_hides() -> None:
    inputs = [tensor(2, 3, 5, 7), tensor(2, 3, 7, 11)]
    found = counts("Einsum", inputs, [tensor(2, 3, 5, 11)], equation="...ij,...jk->...ik")
    assert found[0] == 2 * (2 * 3) * 5 * 7 * 11


def test_an_implicit_product_keeps_what_appears_once() -> None:
    found = counts("Einsum", [tensor(3, 5), tensor(5, 7)], [tensor(3, 7)], equation="ij,jk")
    assert found[0] == 2 * 3 * 5 * 7


def test_an_einsum_whose_equation_does_not_fit_has_unknown_flops() -> None:
    assert counts("Einsum", [tensor(3, 5)], [tensor(3)], equation="ijk->i")[0] is None
    assert counts("Einsum", [tensor(3, 5)], [tensor(3)]) == (None, None)


def test_a_sparse_matrix_multiplies_once_per_stored_value_and_column() -> None:
    # 10 values times 4 columns; indices of 10 × 2 and shape of 2 as int64. A row of the dense side
    # is read, and a row of the result read and written, for each value: 3 · 10 · 4 floats.
    inputs = [tensor(10, 2, dtype="int64"), tensor(10), tensor(2, dtype="int64"), tensor(6, 4)]
    flops, size = counts("SparseTensorDenseMatMul", inputs, [tensor(5, 4)])
    assert flops == 2 * 10 * 4
    assert size == (160 + 40 + 16) + 3 * 160 + 4 * 20


def test_a_product_with_an_unknown_side_is_unknown_not_zero() -> None:
    assert counts("MatMul", [UNKNOWN, tensor(3, 5)], [UNKNOWN]) == (None, None)
    assert counts("MatMul", [tensor(2, 3), UNKNOWN], [tensor(2, 5)]) == (60, None)


def test_recurrent_stacks_count_every_gate_of_every_layer() -> None:
    # Two LSTM layers of 16 units on 10 steps of 4 × 8: the products are 2 · 4 gates · units ·
    # (inputs + units) per row; the second layer's inputs are the first one's 16 units.
    state = tensor(2, 4, 16)
    inputs = [tensor(10, 4, 8), state, state, tensor(2_000), ints(4)]
    flops, _ = counts(
        "CudnnRNNV3", inputs, [tensor(10, 4, 16), state, state], rnn_mode="lstm",
        direction="unidirectional",
    )  # fmt: skip
    gates = 3 * SIGMOID + 2 * TANH + 8  # three gates, two tanh, products and sums of the state
    assert flops == 40 * 16 * (2 * 4 * (8 + 16) + gates) + 40 * 16 * (2 * 4 * (16 + 16) + gates)


def test_a_bidirectional_stack_feeds_both_directions_to_the_next_layer() -> None:
    # Plain Relu layers, two directions of two: 40 rows, 16 units, 3 flops beside the products.
    state = tensor(4, 4, 16)
    inputs = [tensor(10, 4, 8), state, state, tensor(2_000), ints(4)]
    flops, _ = counts("CudnnRNNV3", inputs, rnn_mode="rnn_relu", direction="bidirectional")
    first = 2 * 40 * 16 * (2 * (8 + 16) + 3)
    second = 2 * 40 * 16 * (2 * (32 + 16) + 3)
    assert flops == first + second
    backward = counts("CudnnRNNBackpropV3", inputs, rnn_mode="rnn_relu", direction="bidirectional")
    assert backward[0] == 2 * flops


def test_the_block_lstm_multiplies_inputs_and_state_by_four_gates() -> None:
    sequence = tensor(10, 4, 8)
    inputs = [tensor(dtype="int64"), sequence, tensor(4, 16), tensor(4, 16), tensor(24, 64)]
    flops, _ = counts("BlockLSTMV2", inputs)
    products = 2 * 40 * 24 * 64
    assert flops is not None
    assert products < flops < 2 * products
