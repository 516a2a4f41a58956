"""Training scripts whose step calls Python: predicted from op times of their own process."""

import json

import jsonschema
import pytest

from placement_advisor.results.contracts import load_schema

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


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(_SCRIPT)
    return path


def test_no_candidate_runs_and_the_answer_says_why(advisor, script, tmp_path):
    folder = tmp_path / "out"
    ran = advisor("analyze", str(script), "-o", str(folder), "--effort", "0.05")
    assert ran.code == 0, ran.err
    on_one_line = " ".join(ran.out.split())
    place = f"`PyFunc` at train.py:{_LINE + 1}"
    assert f"(no candidate ran: {place} calls Python, which stays with the" in on_one_line
    assert "candidate simulated speed-up (range)" in on_one_line
    assert "measured on one core in the process that made the step" in on_one_line
    assert not (tmp_path / "trained").exists()
    # Two steps of the script, then 2 of warm-up, up to 10 timed and 11 profiled.
    assert len((tmp_path / "counted").read_text()) <= 2 + 2 + 10 + 11

    analysis = json.loads((folder / "analysis.json").read_text())
    jsonschema.validate(analysis, load_schema("analysis"))
    single, *others = analysis["candidates"]
    assert single["name"] == "single"
    assert len(single["measured"]["step_ns"]["samples"]) >= 3
    # Op times fill the step that was measured.
    assert single["predicted"]["step_ns"] == pytest.approx(
        single["measured"]["step_ns"]["median"], rel=0.01
    )
    assert not any(candidate["measured"] for candidate in others)
    assert sum(candidate["predicted"] is not None for candidate in others) >= 3
    assert analysis["recommendation"]["basis"] == "simulated"
    assert analysis["bound"]["costs_from"] == "recorded"
    shown = advisor("show", str(folder), "-v")
    assert shown.code == 0, shown.err
    assert f"Simulated (no candidate ran: {place} calls" in " ".join(shown.out.split())


def test_without_a_run_the_time_of_python_is_said_to_be_unknown(advisor, script, tmp_path):
    folder = tmp_path / "out"
    ran = advisor("analyze", str(script), "-o", str(folder), "--quick", "--hardware", "2xV100")
    assert ran.code == 0, ran.err
    warnings = json.loads((folder / "analysis.json").read_text())["warnings"]
    assert any("calls Python, and how long that takes is not known" in text for text in warnings)


def test_what_has_to_run_a_placement_refuses_it(advisor, script, tmp_path, monkeypatch):
    why = f"`PyFunc` at train.py:{_LINE + 1} calls Python, which stays with the process"
    ran = advisor("balance", str(script))
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert why in ran.err

    monkeypatch.chdir(tmp_path)
    settings = '[tool.advisor]\nhardware = "2xV100"\n[[tool.advisor.models]]\npath = "train.py"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    checked = advisor("check", "--update")
    assert checked.code == 0, checked.out + checked.err
    measured = advisor("check", "--measure")
    assert measured.code == 2, measured.out + measured.err
    assert "calls Python, which stays with the process" in " ".join(measured.out.split())
