import itertools
import sys
from contextlib import nullcontext

import pytest
import tensorflow as tf
from traced_models import IMPORTS

from placement_advisor.errors import ModelError
from placement_advisor.tf.load.loaded_step import leading_size
from placement_advisor.tf.load.loader import load
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.run.native_step import (
    MAX_BATCHES,
    MAX_FIRST_PASS_NS,
    MAX_TIMED_NS,
    WARM_UP_BATCHES,
    time_dataset,
    transformations,
)

MS = 1_000_000


def clock(step_ns):
    """Return a clock that advances by so much at each look."""
    now = itertools.count(0, step_ns)
    return lambda: next(now)


def batches(count, size=4):
    return tf.data.Dataset.from_tensor_slices(tf.zeros((count * size, 3))).batch(size)


def test_a_dataset_ends_with_the_most_batches_or_the_time():
    assert time_dataset(batches(3).repeat(), 4, clock(MS)).batch_ns == (MS,) * MAX_BATCHES
    taken = time_dataset(batches(50), 4, clock(MAX_TIMED_NS // 3)).batch_ns
    # A third, two thirds, all, and more than all.
    assert len(taken) == 4


def test_a_short_dataset_is_read_again_and_its_first_pass_is_warm_up():
    read = []
    dataset = batches(3).map(lambda x: tf.py_function(lambda y: read.append(1) or y, [x], x.dtype))
    taken = time_dataset(dataset, 4, clock(MS)).batch_ns
    assert len(taken) == MAX_BATCHES
    # One batch to see its size, a pass of three, then those that are timed.
    assert len(read) >= 1 + 3 + MAX_BATCHES


def test_the_first_batches_of_a_long_dataset_are_warm_up():
    # Two looks at the clock for the beginning, two for each batch; the first batch that is timed
    # takes all the time that there is.
    fast = 2 + 2 * WARM_UP_BATCHES
    looks = itertools.accumulate(itertools.chain(itertools.repeat(1, fast), [MAX_TIMED_NS + 1]))
    endless = batches(3).repeat()
    assert time_dataset(endless, 4, lambda: next(looks)).batch_ns == (MAX_TIMED_NS + 1,)


def test_a_cached_dataset_is_timed_when_its_cache_is_full_if_that_is_soon():
    seen = []
    dataset = batches(40).map(lambda x: tf.py_function(lambda y: seen.append(1) or y, [x], x.dtype))
    time_dataset(dataset.cache(), 4, clock(MS))
    # One batch to see its size, and one pass: all timed batches came from the cache.
    assert len(seen) == 41

    with pytest.raises(ModelError, match=r"^its first pass did not end within 20 s$"):
        time_dataset(batches(40).cache(), 4, clock(MAX_FIRST_PASS_NS))


def test_batches_may_be_nested_but_not_of_another_size_than_the_step():
    with pytest.raises(ModelError, match=r"^its batches have 8 samples, the step has 4$"):
        time_dataset(batches(3, size=8), 4, clock(MS))
    nested = batches(3).map(lambda x: ({"a": x, "b": tf.zeros((4, 2))}, tf.zeros(4)))
    assert time_dataset(nested, 4, clock(MS)).batch_ns


def test_transformations_stand_source_first_of_all_sources_or_are_not_known():
    rows = tf.data.Dataset.from_tensor_slices(tf.zeros((8, 3)))
    dataset = rows.shuffle(8).map(lambda x: x, num_parallel_calls=2).cache().batch(4).prefetch(1)
    kinds = ("TensorSlice", "Shuffle", "ParallelMap", "Cache", "Batch", "Prefetch")
    assert transformations(dataset) == tuple(f"{kind}Dataset" for kind in kinds)

    both = tf.data.Dataset.zip((tf.data.Dataset.range(3), tf.data.Dataset.range(3).repeat()))
    assert transformations(both) == ("RangeDataset", "RangeDataset", "RepeatDataset", "ZipDataset")
    assert transformations(object()) == ()


def test_what_the_user_raises_comes_out():
    def fails(_):
        raise OSError("no such shard")

    broken = batches(3).map(lambda x: tf.py_function(fails, [x], x.dtype))
    with pytest.raises(Exception, match="no such shard"):
        time_dataset(broken, 4, clock(MS))


ROWS = f"""{IMPORTS}
import placement_advisor
rows = tf.data.Dataset.from_tensor_slices(np.zeros((16, 3), np.float32)).batch(4)
"""
STEP = """
weights = tf.Variable(tf.zeros((3, 2)))

@tf.function
def step(x):
    return x @ weights

"""
MODEL = "model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])\n"


def loaded(path, **asked):
    """Load a file that runs no step, in this process, whose main module stays as it is."""
    main = sys.modules["__main__"]
    try:
        return load(ModelSource(path=str(path), **asked), lambda find: None)
    finally:
        sys.modules["__main__"] = main


@pytest.mark.parametrize(
    "code",
    [
        STEP + "dataset = rows\n",
        STEP + "def workload():\n    return placement_advisor.Workload(step=step, inputs=rows)\n",
        MODEL + "dataset = rows\n",
        # Targets are made up; the inputs are the user's all the same.
        MODEL + "model.compile('sgd', 'mse')\ndataset = rows\n",
    ],
)
@pytest.mark.parametrize("batch_size", [None, 8])
def test_the_dataset_of_a_model_file_is_kept_as_it_was_written(write_model, code, batch_size):
    found = loaded(write_model(ROWS + code), batch_size=batch_size)
    assert [len(batch) for batch in found.dataset] == [4] * 4
    assert found.batch_size == (batch_size or 4)
    with nullcontext() if batch_size is None else pytest.raises(ModelError):
        time_dataset(found.dataset, leading_size(found.specs), clock(MS))


def test_a_model_file_without_a_dataset_has_none_to_time(write_model):
    found = loaded(write_model(ROWS + STEP + "inputs = np.zeros((4, 3), np.float32)\n"))
    assert found.dataset is None
