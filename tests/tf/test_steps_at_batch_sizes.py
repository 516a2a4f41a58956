"""The user's own step at several batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from finding_evidence import graph_of, growing_of, op

from placement_advisor.processes.calls import CallFailure
from placement_advisor.testbed.user_step import batch_points
from placement_advisor.tf.calls import native_step, tracer
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.processes.children import Child
    from placement_advisor.simulator.step_growth import GrowingStep

_STEP = """
import tensorflow as tf
@tf.function
def step(x, scale):
    return tf.reduce_sum(x * scale, name="total") + 0.0 * tf.reduce_sum(tf.reshape(x, {shape}))
inputs = tf.ones((8, 6)), tf.ones((6,))
"""


def _loaded(child: Child, folder: Path, *, shape: str = "(-1,)") -> Child:
    path = folder / "step.py"
    path.write_text(_STEP.format(shape=shape))
    child.call(tracer.load_workload, ModelSource(path=str(path)))
    return child


def _growing(batch: int) -> GrowingStep:
    return growing_of(
        lambda n: graph_of([op("total", 4 * n, flops=6 * n, bytes_accessed=24 * n)]),
        batch,
        {"total": 80},
    )


def test_the_batch_is_cut_and_what_is_no_batch_stays_whole(child, tmp_path):
    points = batch_points(_loaded(child, tmp_path), _growing(8), [1_000_000])[:3]
    assert [point.batch for point in points] == [8, 4, 2]
    assert all(point.samples_per_s > 0 for point in points)


def test_each_turn_times_the_same_number_of_steps(child, tmp_path):
    loaded = _loaded(child, tmp_path)
    times = loaded.call(native_step.run_at_batches, (8, 4), 2, 3)
    assert {size: len(found) for size, found in times.items()} == {8: 6, 4: 6}


def test_a_step_that_takes_its_own_batch_alone_gives_none(child, tmp_path):
    loaded = _loaded(child, tmp_path, shape="(48,)")
    answer = loaded.call(native_step.run_at_batches, (8, 4), 1, 1)
    assert isinstance(answer, CallFailure)
    assert batch_points(loaded, _growing(8), [1_000_000]) == ()


@pytest.mark.parametrize(("batch_size", "as_is_ns"), [(3, [1]), (8, []), (8, [2_000_000_000])])
def test_nothing_is_run_where_it_cannot_tell_or_takes_too_long(child, batch_size, as_is_ns):
    # Nothing is loaded: any call would fail.
    assert batch_points(child, _growing(batch_size), as_is_ns) == ()
