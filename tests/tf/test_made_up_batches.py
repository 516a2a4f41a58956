"""Made-up batches hold what the step can take: ids of their tables, classes, words."""

import numpy as np
import pytest

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import RemoteModule

loaded_workload = RemoteModule("loaded_workload")

IMPORTS = "import tensorflow as tf\ntable = tf.Variable(tf.ones((11, 2)))\n"


@pytest.fixture
def made_up(loader, write_model):
    """Return the values that a step's only input gets in all batches; the step runs on each."""

    def values(body, spec, before=""):
        path = write_model(
            f"{IMPORTS}{before}\n@tf.function(input_signature=[tf.TensorSpec({spec})])\n"
            f"def step(value):\n    {body}\n"
        )
        found = loader.call(loaded_workload.trace, str(path), {})
        return np.stack([batch[0] for batch in found["batches"]])

    return values


# Each body looks `value` up where it must be below the bound. With 128 draws, the largest value
# of the bound's upper half is missing once in 2^128.
BOUNDED = {
    "tf.gather": ("return tf.gather(table, value)", 11),
    "embedding_lookup": ("return tf.nn.embedding_lookup(table, value)", 11),
    "another axis": ("return tf.gather(tf.ones((3, 7)), value, axis=1)", 7),
    "a constant table": ("return tf.gather(tf.range(5), value)", 5),
    "the smaller of two": ("return tf.gather(table, value), tf.gather(tf.range(5), value)", 5),
    "on the way": (
        "parts = tf.split(tf.reshape(tf.cast(value, tf.int32), (4, 8)), 2)\n"
        "    return tf.gather(table, tf.stack(tf.unstack(tf.transpose(parts[1][1:]), axis=0)))",
        11,
    ),
    "one-hot": ("return tf.one_hot(value, 6)", 6),
    "classes": (
        "return tf.nn.sparse_softmax_cross_entropy_with_logits(value, tf.ones((32, 9)))",
        9,
    ),
    "segments": ("return tf.math.unsorted_segment_sum(tf.ones((32,)), value, 4)", 4),
    "a sparse update": ("return table.scatter_add(tf.IndexedSlices(tf.ones((32, 2)), value))", 11),
    "coordinates": ("return tf.gather_nd(table, value[:, None])", 11),
    "in a function": ("return look_up(value)", 11),
    "through a function": ("return tf.gather(tf.range(5), same(value))", 5),
    "in a branch": (
        "return tf.cond(tf.reduce_sum(table) > 0, lambda: look_up(value), lambda: table)",
        11,
    ),
    "in a loop": (
        "total = tf.zeros((2,))\n"
        "    for i in tf.range(32):\n        total += tf.gather(table, value[i])\n"
        "    return total",
        11,
    ),
    "over a list": (
        "return tf.map_fn(lambda i: tf.gather(table, i), value, fn_output_signature=tf.float32)",
        11,
    ),
    "offset: unknown, so small": ("return tf.gather(table, value + 3)", 2),
    "nowhere: unknown, so small": ("return 2 * value", 2),
}
FUNCTIONS = (
    "@tf.function\ndef look_up(ids):\n    return tf.gather(table, ids)\n"
    "@tf.function\ndef same(ids):\n    return tf.identity(ids)\n"
)


@pytest.mark.parametrize("where", BOUNDED)
def test_ids_lie_in_what_they_are_looked_up_in(made_up, where):
    body, bound = BOUNDED[where]
    values = made_up(body, "[None], tf.int32", FUNCTIONS)
    assert values.shape == (4, 32)
    assert values.min() >= 0
    assert bound // 2 <= values.max() < bound


def test_ids_may_come_as_floats_and_a_type_without_values_is_refused_by_its_name(made_up):
    values = made_up("return tf.gather(table, tf.cast(value, tf.int32))", "[None], tf.float32")
    assert values.dtype == np.float32
    assert set(values.ravel()) <= set(range(11))
    with pytest.raises(ModelError, match="input 'value' has type variant"):
        made_up("return value", "[None], tf.variant")


def test_words_come_from_the_lookup_table_that_reads_them_and_are_short_otherwise(made_up):
    values = made_up(
        "return words.lookup(value)",
        "[None], tf.string",
        "words = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(['red', 'blue'], "
        "[0, 1]), -1)",
    )
    assert set(values.ravel()) == {b"red", b"blue"}

    values = made_up("return tf.strings.length(value)", "[None], tf.string")
    assert all(value.startswith(b"word") for value in values.ravel())


def test_numbers_are_normal_differ_from_batch_to_batch_and_are_the_same_each_time(made_up):
    body = ("return 2.0 * value", "[None, 3], tf.float32")
    values = made_up(*body)
    assert abs(values.mean()) < 0.2
    assert 0.8 < values.std() < 1.2
    assert not np.array_equal(values[0], values[1])
    np.testing.assert_array_equal(made_up(*body), values)


def test_scalars_steer_so_they_are_a_rate_or_off_and_truths_are_mixed(made_up):
    assert made_up("return 2.0 * value", "[], tf.float32").tolist() == [0.5] * 4
    switch = "return tf.cond(value, lambda: 1, lambda: 2)"
    assert made_up(switch, "[], tf.bool").tolist() == [False] * 4
    assert 0 < made_up("return tf.logical_not(value)", "[None], tf.bool").mean() < 1


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bfloat16", "complex64"])
def test_any_type_of_numbers_has_values(made_up, dtype):
    assert made_up("return value + value", f"[None], tf.{dtype}").dtype == dtype


ONE_BATCH = """
@tf.function
def step(x, y):
    return tf.reduce_sum(x), tf.strings.length(y)

inputs = {inputs}
"""


@pytest.fixture
def second(loader, write_model):
    """Return the second batch of a step whose file has one batch as values."""

    def values(inputs):
        path = write_model(IMPORTS + ONE_BATCH.format(inputs=inputs))
        return loader.call(loaded_workload.another_batch, str(path))

    return values


def test_to_one_batch_another_of_its_samples_is_added(second):
    numbers, words = second("tf.constant([5, 3, 8, 1]), tf.constant(['a', 'b', 'c', 'd'])")
    of = {5: b"a", 3: b"b", 8: b"c", 1: b"d"}
    assert [of[number] for number in numbers.tolist()] == words.tolist()
    assert numbers.tolist() != [5, 3, 8, 1]
    assert sorted(numbers, key=[5, 3, 8, 1].index) == numbers.tolist()  # Sorted rows stay so.

    numbers, word = second("tf.constant([5, 3, 8, 1]), tf.constant('a')")
    assert numbers.tolist() != [5, 3, 8, 1]
    assert word == b"a"


@pytest.mark.parametrize(
    "inputs",
    [
        "tf.range(4), tf.constant(['a', 'b', 'c', 'd'])",
        "tf.constant([[0, 2], [0, 3], [1, 0]]), tf.constant('a')",
        "tf.constant(4), tf.constant('a')",
    ],
    ids=["places", "indices", "no samples"],
)
def test_samples_that_say_where_they_belong_are_left_alone(second, inputs):
    assert second(inputs) is None
