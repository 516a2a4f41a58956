from __future__ import annotations

import pytest
from signatures import TABLE, UNKNOWN, counts, ints, tensor, variable

from placement_advisor.graph.op_work.elementwise import DIVIDE, SQRT

ROWS = tensor(20, 8)  # 640 bytes
PLACES = ints(20)  # 80 bytes


def test_a_gather_reads_the_rows_that_it_puts_out_not_the_table_by_hand() -> None:
    # 20 rows of 8 floats read and written, 20 places read.
    assert counts("GatherV2", [tensor(1_000, 8), PLACES, ints()], [ROWS]) == (0, 2 * 640 + 80)
    assert counts("ResourceGather", [variable(1_000, 8), PLACES], [ROWS]) == (0, 2 * 640 + 80)


def test_a_gather_from_an_unknown_table_costs_the_same() -> None:
    assert counts("ResourceGather", [TABLE, PLACES], [ROWS]) == (0, 2 * 640 + 80)
    assert counts("ResourceGather", [TABLE, PLACES], [UNKNOWN]) == (0, None)


def test_unsorted_segments_fill_the_output_then_add_row_by_row() -> None:
    # 160 additions; 50 × 8 floats of zeros, then each row is read, and its target read and written.
    found = counts("UnsortedSegmentSum", [ROWS, PLACES, ints()], [tensor(50, 8)])
    assert found == (160, 1_600 + 3 * 640 + 80)


def test_sorted_segments_write_each_row_once() -> None:
    assert counts("SegmentSum", [ROWS, PLACES], [tensor(5, 8)]) == (160, 640 + 80 + 160)


def test_sparse_segments_read_the_rows_that_are_picked() -> None:
    found = counts("SparseSegmentMean", [tensor(1_000, 8), PLACES, PLACES], [tensor(5, 8)])
    assert found == (160, 640 + 80 + 80 + 160)


def test_scattering_into_a_tensor_copies_it_first() -> None:
    table = tensor(50, 8)
    inputs = [table, ints(20, 1), ROWS]
    assert counts("TensorScatterAdd", inputs, [table]) == (160, 2 * 1_600 + 3 * 640 + 80)
    assert counts("TensorScatterUpdate", inputs, [table]) == (0, 2 * 1_600 + 2 * 640 + 80)


def test_scattering_into_a_variable_touches_its_rows_alone() -> None:
    inputs = [variable(1_000, 8), PLACES, ROWS]
    assert counts("ResourceScatterAdd", inputs) == (160, 3 * 640 + 80)
    assert counts("ResourceScatterUpdate", inputs) == (0, 2 * 640 + 80)


def test_one_number_scattered_to_many_rows_counts_every_row() -> None:
    inputs = [variable(1_000, 8), PLACES, tensor()]
    assert counts("ResourceScatterSub", inputs)[0] == 20 * 8


def test_partition_and_stitch_move_all_data_once() -> None:
    partition = counts("DynamicPartition", [ROWS, PLACES], [UNKNOWN, UNKNOWN])
    assert partition == (0, 2 * 640 + 80)
    stitch = counts("DynamicStitch", [ints(5), ints(15), tensor(5, 8), tensor(15, 8)], [ROWS])
    assert stitch == (0, 80 + 2 * 640)


def test_a_hash_table_moves_two_cache_lines_per_key() -> None:
    # 20 keys and 20 values of 8 bytes, the default 8; 2 · 64 per key.
    keys = tensor(20, dtype="int64")
    inputs = [TABLE, keys, tensor(dtype="int64")]
    assert counts("LookupTableFindV2", inputs, [keys]) == (20 * 20, 160 + 8 + 160 + 20 * 128)


def test_texts_count_as_their_string_objects() -> None:
    words = tensor(20, dtype="string")
    _, size = counts("StringToHashBucketFast", [words], [tensor(20, dtype="int64")])
    assert size == 20 * 24 + 160


def test_unique_looks_every_value_up_although_it_is_not_known_how_many_stay() -> None:
    assert counts("Unique", [PLACES], [UNKNOWN, PLACES]) == (20 * 20, 80 + 80 + 20 * 128)


def test_a_binary_search_halves_the_row_for_every_value() -> None:
    # 1,024 sorted values: 10 steps for each of 20.
    assert counts("LowerBound", [tensor(1, 1024), tensor(1, 20)], [ints(1, 20)])[0] == 200


STATE = variable(100)
SCALAR = tensor()
GRADIENT = tensor(100)


def test_adam_reads_and_writes_variable_and_moments_and_reads_the_gradient() -> None:
    # Per element: m 3, v 4, variable 3, one root, one division. 7 passes over 400 bytes.
    inputs = [STATE, STATE, STATE, *[SCALAR] * 6, GRADIENT]
    assert counts("ResourceApplyAdam", inputs) == (100 * (10 + SQRT + DIVIDE), 7 * 400)


@pytest.mark.parametrize(
    ("kind", "inputs", "passes"),
    [
        ("ResourceApplyGradientDescent", [STATE, SCALAR, GRADIENT], 3),
        ("ResourceApplyMomentum", [STATE, STATE, SCALAR, GRADIENT, SCALAR], 5),
        ("ResourceApplyAdagradV2", [STATE, STATE, SCALAR, SCALAR, GRADIENT], 5),
        ("ResourceApplyRMSProp", [*[STATE] * 3, *[SCALAR] * 4, GRADIENT], 7),
        ("ResourceApplyFtrl", [*[STATE] * 3, GRADIENT, *[SCALAR] * 4], 7),
        ("AssignAddVariableOp", [STATE, GRADIENT], 3),
        ("AssignVariableOp", [STATE, GRADIENT], 2),
        ("ApplyMomentum", [GRADIENT, GRADIENT, SCALAR, GRADIENT, SCALAR], 5),
    ],
)
def test_an_update_passes_over_its_states_twice_and_its_gradient_once(
    kind: str, inputs: list, passes: int
) -> None:
    assert counts(kind, inputs)[1] == passes * 400


def test_a_sparse_update_touches_the_rows_of_its_gradient() -> None:
    table = variable(1_000, 8)
    inputs = [table, table, SCALAR, SCALAR, ROWS, PLACES]
    assert counts("ResourceSparseApplyAdagradV2", inputs)[1] == 5 * 640 + 80
