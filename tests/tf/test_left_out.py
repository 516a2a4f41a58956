"""What a traced step has not of the user's program, and what of that *as-is* has."""

from __future__ import annotations

import pytest

from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child
from placement_advisor.tf.answers import LeftOut
from placement_advisor.tf.calls import native_step, tracer
from placement_advisor.tf.load.model_source import ModelSource

_KERAS = """
import keras, numpy as np
class Own(keras.Model):
    def {method}(self, *args, **more):
        return super().{method}(*args, **more)
side = keras.Input((4,))
model = {kind}(side, keras.layers.Dense(1)(side))
{rest}
inputs = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
"""
_FUNCTION = """
import tensorflow as tf
{rest}
weight = tf.Variable(tf.ones((4, 4)))
@tf.function({options})
def product(x):
    return tf.sin(x @ weight)
@tf.function
def step(x):
    return product(x) * 2.0
inputs = (tf.ones((8, 4)),)
"""


def _keras(rest: str, kind: str = "keras.Model", method: str = "make_train_function") -> str:
    return _KERAS.format(rest=rest, kind=kind, method=method)


def _compiled(options: str = "", **more: str) -> str:
    return _keras(f'model.compile("sgd", "mse"{options})', **more)


def _function(options: str = "", rest: str = "") -> str:
    return _FUNCTION.format(options=options, rest=rest)


@pytest.mark.parametrize(
    ("source", "left_out"),
    [
        (_compiled(), LeftOut()),
        (_compiled(", jit_compile=True"), LeftOut(jit_compile=True)),
        (_compiled(", run_eagerly=True"), LeftOut(run_eagerly=True)),
        (_compiled(", steps_per_execution=4"), LeftOut(steps_per_call=4)),
        (_compiled(kind="Own"), LeftOut(method="make_train_function")),
        (_keras("", kind="Own", method="predict_step"), LeftOut(method="predict_step")),
        (_function(), LeftOut()),
        (_function("jit_compile=False"), LeftOut()),
        (_function("jit_compile=True"), LeftOut(jit_compile=True)),
        (_function(rest="tf.config.run_functions_eagerly(True)"), LeftOut(run_eagerly=True)),
        (
            _function(rest="tf.config.optimizer.set_jit(True)"),
            LeftOut(settings=("tf.config.optimizer.set_jit",)),
        ),
        (
            _function(rest="tf.config.threading.set_intra_op_parallelism_threads(2)"),
            LeftOut(settings=("tf.config.threading",)),
        ),
        (
            _function(
                rest="tf.config.optimizer.set_experimental_options("
                '{"remapping": False, "auto_mixed_precision": True})'
            ),
            LeftOut(settings=("remapping", "auto_mixed_precision")),
        ),
    ],
)
def test_what_is_left_out_is_known(trace_source, source, left_out):
    found = trace_source(source).traced.left_out
    assert found == left_out
    assert len(found.told()) == (left_out != LeftOut())


_TELLING = """
import keras, numpy as np, tensorflow as tf
calls = []
class Telling(keras.Model):
    def train_step(self, data):
        logs = super().train_step(data)
        {tell}
        return logs
side = keras.Input((4,))
model = Telling(side, keras.layers.Dense(1)(side))
model.compile("sgd", "mse"{option})
inputs = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
"""
# XLA has no kernels for texts; only what is no graph calls Python in each step.
_TELLS = {
    ", jit_compile=True": 'logs["digits"] = tf.strings.length(tf.strings.as_string(logs["loss"]))',
    ", run_eagerly=True": "calls.append(1 // (len(calls) < 20))",
}


@pytest.mark.parametrize("option", _TELLS)
def test_the_users_own_step_runs_as_their_model_is_compiled(tmp_path, option):
    for compiled in ("", option):
        path = tmp_path / f"model_{bool(compiled)}.py"
        path.write_text(_TELLING.format(tell=_TELLS[option], option=compiled))
        with Child("loader") as loader:
            loader.call(tracer.load_workload, ModelSource(path=str(path)))
            answer = loader.call(native_step.run_as_is, 0, 30)
        assert isinstance(answer, CallFailure) == bool(compiled)
