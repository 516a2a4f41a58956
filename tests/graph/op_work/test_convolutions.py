from __future__ import annotations

import pytest
from signatures import UNKNOWN, counts, ints, tensor

# Textbook: 2 · N · H · W · K · K · C · F for a batch N of H × W results, K × K filters, C channels
# in and F out.
N, H, W, K, C, F = 8, 28, 30, 3, 16, 32
TEXTBOOK = 2 * N * H * W * K * K * C * F
IMAGE, FILTER, RESULT = tensor(N, H, W, C), tensor(K, K, C, F), tensor(N, H, W, F)
# The filter is rearranged: read and written once more.
ALL_BYTES = 4 * (N * H * W * C + 3 * K * K * C * F + N * H * W * F)


@pytest.mark.parametrize("prefix", ["", "_Mkl", "_MklNative"])
def test_a_convolution_costs_what_the_textbook_says(prefix: str) -> None:
    found = counts(f"{prefix}Conv2D", [IMAGE, FILTER], [RESULT], padding="SAME")
    assert found == (TEXTBOOK, ALL_BYTES)


def test_both_gradients_multiply_and_add_as_often_as_the_convolution() -> None:
    by_input = counts("Conv2DBackpropInput", [ints(4), FILTER, RESULT], [IMAGE])
    by_filter = counts("Conv2DBackpropFilter", [IMAGE, ints(4), RESULT], [FILTER])
    assert by_input == by_filter == (TEXTBOOK, ALL_BYTES + 16)


def test_strides_and_padding_count_through_the_result_by_hand() -> None:
    # 7 × 7 with stride 2, no padding, on 11 × 11: 3 × 3 results of 2 filters on 1 channel.
    found = counts(
        "Conv2D", [tensor(1, 11, 11, 1), tensor(7, 7, 1, 2)], [tensor(1, 3, 3, 2)],
        padding="VALID", strides=[1, 2, 2, 1],
    )  # fmt: skip
    assert found[0] == 2 * 9 * 49 * 2


def test_channels_first_costs_the_same() -> None:
    inputs = [tensor(N, C, H, W), FILTER]
    assert counts("Conv2D", inputs, [tensor(N, F, H, W)], data_format="NCHW")[0] == TEXTBOOK


def test_groups_divide_the_work() -> None:
    # Four groups: each filter sees a quarter of the channels.
    grouped = tensor(K, K, C // 4, F)
    assert counts("Conv2D", [IMAGE, grouped], [RESULT])[0] == TEXTBOOK // 4


def test_a_convolution_in_three_dimensions_has_one_more_axis() -> None:
    found = counts(
        "Conv3D", [tensor(2, 5, 6, 7, 4), tensor(3, 3, 3, 4, 8)], [tensor(2, 5, 6, 7, 8)]
    )
    assert found[0] == 2 * (2 * 5 * 6 * 7) * 27 * 4 * 8


def test_a_depthwise_convolution_sums_over_positions_alone() -> None:
    # Multiplier 2: 32 results per place, 9 multiply-adds each.
    filters, result = tensor(K, K, C, 2), tensor(N, H, W, 2 * C)
    expected = 2 * N * H * W * 2 * C * 9
    assert counts("DepthwiseConv2dNative", [IMAGE, filters], [result])[0] == expected
    by_input = counts("DepthwiseConv2dNativeBackpropInput", [ints(4), filters, result], [IMAGE])
    by_filter = counts("DepthwiseConv2dNativeBackpropFilter", [IMAGE, ints(4), result], [filters])
    assert by_input[0] == by_filter[0] == expected


def test_a_transposed_convolution_is_the_gradient_by_the_input() -> None:
    # 4 × 4 to 8 × 8: each of the 16 inputs of 3 channels meets 2 × 2 places of 5 outputs.
    inputs = [ints(4), tensor(2, 2, 5, 3), tensor(1, 4, 4, 3)]
    assert counts("Conv2DBackpropInput", inputs, [tensor(1, 8, 8, 5)])[0] == 2 * 16 * 3 * 4 * 5


def test_bias_and_activation_that_are_fused_count_per_result() -> None:
    found = counts(
        "_FusedConv2D", [IMAGE, FILTER, tensor(F)], [RESULT], fused_ops=["BiasAdd", "Relu"]
    )
    assert found == (TEXTBOOK + 2 * N * H * W * F, ALL_BYTES + 4 * F)


def test_an_unknown_filter_shape_is_taken_from_the_sizes_given() -> None:
    inputs = [IMAGE, ints(4), RESULT]
    assert counts("Conv2DBackpropFilter", inputs, [UNKNOWN]) == (None, None)
    known = counts("Conv2DBackpropFilter", inputs, [UNKNOWN], constants={1: [K, K, C, F]})
    assert known == (TEXTBOOK, None)


def test_pooling_looks_once_at_every_place_of_each_window() -> None:
    # 4 × 4 × 3 in windows of 2 × 2: 12 results of 4 comparisons; 48 + 12 floats.
    image, pooled = tensor(1, 4, 4, 3), tensor(1, 2, 2, 3)
    found = counts("MaxPool", [image], [pooled], ksize=[1, 2, 2, 1])
    assert found == (48, 4 * 60)
    by_input = counts("MaxPoolV2", [image, ints(4), ints(4)], [pooled], {1: [1, 2, 2, 1]})
    assert by_input[0] == 48


def test_the_gradient_of_a_maximum_finds_it_again_and_adds() -> None:
    image, pooled = tensor(1, 4, 4, 3), tensor(1, 2, 2, 3)
    found = counts("MaxPoolGrad", [image, pooled, pooled], [image], ksize=[1, 2, 2, 1])
    assert found == (12 * 5, 4 * (48 + 12 + 12 + 48))


def test_the_gradient_of_an_average_adds_at_every_place_of_the_window() -> None:
    found = counts(
        "AvgPoolGrad", [ints(4), tensor(1, 2, 2, 3)], [tensor(1, 4, 4, 3)], ksize=[1, 2, 2, 1]
    )
    assert found[0] == 12 * 5


def test_batch_normalisation_in_training_reads_its_input_twice() -> None:
    # 60 elements of 3 channels: mean 1, variance 3, scale 2 flops each. Bytes: the input twice,
    # the output, and eight vectors of 3 (scale, offset, mean, variance; four of results).
    x, vector = tensor(4, 5, 3), tensor(3)
    inputs, outputs = [x, *[vector] * 4], [x, *[vector] * 4]
    found = counts("FusedBatchNormV3", inputs, outputs, is_training=True)
    assert found == (60 * 6, 4 * (3 * 60 + 8 * 3))


def test_batch_normalisation_at_inference_only_scales() -> None:
    x, vector = tensor(4, 5, 3), tensor(3)
    found = counts("FusedBatchNormV3", [x, *[vector] * 4], [x], is_training=False)
    assert found == (60 * 2, 4 * (2 * 60 + 4 * 3))


def test_the_gradient_of_batch_normalisation_reads_both_tensors_twice() -> None:
    x = tensor(4, 5, 3)
    found = counts("FusedBatchNormGradV3", [x, x], [x], is_training=True)
    assert found == (60 * 10, 4 * 5 * 60)
