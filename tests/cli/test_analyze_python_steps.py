"""Training scripts whose step calls Python: predicted from op times of their own process."""

import pytest
from cli_answers import refusal

pytestmark = pytest.mark.slow
_SCRIPT = """
import keras, numpy as np, tensorflow as tf
from pathlib import Path
def halved(values):
    with Path(__file__).with_name("counted").open("a") as file:
        file.write(".")
    return values / 2
class Ranker(keras.Model):
    def __init__(self):
        super().__init__()
        self.left, self.right = keras.layers.Dense(64), keras.layers.Dense(64)
        self.head = keras.layers.Dense(1)
    def call(self, x):
        soft = tf.ensure_shape(tf.numpy_function(halved, [x], tf.float32), x.shape)
        return self.head(tf.concat([self.left(x), self.right(x), soft], axis=1))
model = Ranker()
model.compile("adam", "mse")
model.fit(np.ones((64, 32), "float32"), np.ones((64, 1), "float32"), batch_size=16, verbose=0)
Path(__file__).with_name("trained").touch()
"""
_LINE = _SCRIPT.splitlines().index(
    "        soft = tf.ensure_shape(tf.numpy_function(halved, [x], tf.float32), x.shape)"
)


_PLACE = f"`PyFunc` at model.py:{_LINE + 1}"


def test_no_candidate_runs_and_the_answer_says_why(analyze, advisor, tmp_path):
    found = analyze(_SCRIPT, "--effort", "0.05")
    on_one_line = " ".join(found.ran.out.split())
    assert f"(no candidate ran: {_PLACE} calls Python, which stays with the" in on_one_line
    assert "candidate simulated speed-up (range)" in on_one_line
    assert "measured on one core in the process that made the step" in on_one_line
    assert not (tmp_path / "trained").exists()
    # Two steps of the script, then 2 of warm-up, up to 10 timed and 11 profiled.
    assert len((tmp_path / "counted").read_text()) <= 2 + 2 + 10 + 11
    single, *others = found.analysis["candidates"]
    assert single["name"] == "single"
    step_ns = single["measured"]["step_ns"]
    assert len(step_ns["samples"]) >= 3
    # Op times fill the step that was measured.
    assert single["predicted"]["step_ns"] == pytest.approx(step_ns["median"], rel=0.01)
    assert not any(candidate["measured"] for candidate in others)
    assert sum(candidate["predicted"] is not None for candidate in others) >= 3
    assert found.analysis["recommendation"]["basis"] == "simulated"
    assert found.analysis["bound"]["costs_from"] == "recorded"
    shown = advisor("show", str(found.folder), "-v")
    assert f"Simulated (no candidate ran: {_PLACE} calls" in " ".join(shown.out.split())


def test_without_a_run_the_time_of_python_is_said_to_be_unknown(analyze):
    warnings = analyze(_SCRIPT, "--quick", "--hardware", "2xV100").analysis["warnings"]
    assert any("calls Python, and how long that takes is not known" in text for text in warnings)


def test_what_has_to_run_a_placement_refuses_it(advisor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(_SCRIPT)
    error = refusal(advisor("balance", "model.py"))
    assert f"{_PLACE} calls Python, which stays with the process" in error
    settings = '[tool.advisor]\nhardware = "2xV100"\n[[tool.advisor.models]]\npath = "model.py"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    checked = advisor("check", "--update")
    assert checked.code == 0, checked.out + checked.err
    measured = advisor("check", "--measure")
    assert measured.code == 2, measured.out + measured.err
    assert "calls Python, which stays with the process" in " ".join(measured.out.split())
