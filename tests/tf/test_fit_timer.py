"""Keras' `fit` around the user's step, timed in the child that has loaded it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from placement_advisor.measurement.measurement import LoopTiming
from placement_advisor.testbed.user_step import loop_timing
from placement_advisor.tf.calls import native_step, tracer
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.processes.children import Child

_MODEL = """
import keras, numpy as np
sides = [keras.Input((4,)) for _ in range(2)]
model = keras.Model(sides, keras.layers.Dense(1)(keras.layers.Concatenate()(sides)))
{compiled}
inputs = ([np.ones((8, 4), "float32")] * 2, np.ones((8, 1), "float32"))
"""
_OWN = """
class Own(keras.Model):
    def {method}(self, *args, **more):
        raise RuntimeError("never")
model = Own(model.inputs, model.outputs)
model.compile("sgd", "mse")
"""


def _loaded(child: Child, folder: Path, compiled: str) -> Child:
    path = folder / "model_file.py"
    path.write_text(_MODEL.format(compiled=compiled))
    child.call(tracer.load_workload, ModelSource(path=str(path)))
    return child


def test_each_round_times_one_step_for_each_call_and_several(child, tmp_path):
    loaded = _loaded(child, tmp_path, 'model.compile("sgd", "mse")')
    timing = loaded.call(native_step.time_fit, 2)
    assert isinstance(timing, LoopTiming)
    assert timing.steps_per_call == 10
    assert len(timing.one_ns) == len(timing.several_ns) == 2
    # Of so small a step, nearly all is the call. Other work may hit one of the two rounds.
    assert max(timing.saved_shares) > 0
    # The model is as it was: its step runs as before.
    assert len(loaded.call(native_step.run_as_is, 0, 2)) == 2


@pytest.mark.parametrize(
    "compiled",
    [
        "",
        'model.compile("sgd", "mse", steps_per_execution=4)',
        _OWN.format(method="fit"),
        _OWN.format(method="make_train_function"),
    ],
)
def test_what_is_no_fit_of_keras_with_a_call_for_each_step_gives_none(child, tmp_path, compiled):
    assert loop_timing(_loaded(child, tmp_path, compiled), [1_000_000]) is None


@pytest.mark.parametrize("as_is_ns", [[], [100_000_000]])
def test_nothing_is_run_where_a_call_is_next_to_nothing(child, as_is_ns):
    # Nothing is loaded: any call would fail.
    assert loop_timing(child, as_is_ns) is None
