"""What a mirrored step is profiled with: the share of the batch with which it was timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.tf.calls import mirrored
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable


SAYS_ITS_BATCH = """
import tensorflow as tf

weights = tf.Variable([[1.0], [2.0]])
optimizer = tf.keras.optimizers.SGD(0.1)

@tf.function
def train_step(x):
    tf.print(tf.shape(x)[0], output_stream="file://{log}")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights)) / 2
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    return loss

inputs = (tf.ones((12, 2)),)
"""


def test_the_profile_is_of_the_share_that_was_timed_whatever_ran_last(
    child, trace_source, tmp_path
):
    log = tmp_path / "batches"
    model = trace_source(SAYS_ITS_BATCH.format(log=log))

    def call(function: Callable[..., Any], *args: Any) -> Any:
        return child.call(function, *args)

    def batches_of(function: Callable[..., Any], *args: Any) -> set[str]:
        log.write_text("")
        answer = call(function, *args)
        assert answer is None or isinstance(answer, list), answer
        return set(log.read_text().split())

    source = ModelSource(
        path=str(tmp_path / "model_file.py"), name=None, mode=None, batch_size=None, outputs=()
    )
    call(mirrored.open_devices, "CPU", 2)
    call(mirrored.prepare, source, str(model.bundle), model.traced.created, None)
    assert batches_of(mirrored.run_steps, 0, 1, False) == {"6"}
    assert batches_of(mirrored.run_steps, 0, 1, True) == {"12"}
    assert batches_of(mirrored.run_marked_steps, 1) == {"6"}
