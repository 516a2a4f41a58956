"""`advisor run`: a script takes the process over, as it is or with its step split."""

import io
import json
import os
import signal
from functools import partial
from pathlib import Path

import jsonschema
import pytest
from cli_answers import error_of
from command_runs import Command, run_here
from sample_analysis import TOWERS, written

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.cli import placed_script
from placement_advisor.results.contracts import load_schema

# Runs without TensorFlow.
_PLAIN = """
import os, sys
print(sys.argv[1:], __name__, os.path.basename(__file__), sys.path[0] == os.path.dirname(__file__))
print("to stderr", file=sys.stderr)
sys.exit(3)
"""
_TRAINS = """
import sys, time
import numpy as np, tensorflow as tf
left, right = (tf.Variable(np.ones((4, 3), "float32"), name=name) for name in ("left", "right"))
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(x @ left) * tf.tanh(x @ right))
    for variable, gradient in zip((left, right), tape.gradient(loss, (left, right))):
        variable.assign_sub(0.01 * gradient)
    return loss
"""
_FOREVER = (
    _TRAINS
    + """
count = 0
try:
    while True:
        step(np.full((2, 4), count % 7, "float32"))
        count += 1
        if count == 300: print("training", file=sys.stderr, flush=True)
except KeyboardInterrupt:
    print("saved", float(tf.reduce_sum(left)) != 12, flush=True)
    raise
"""
)


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the command in a process and a folder of its own."""

    def command(*words):
        with Command("run", *words, temp=tmp_path / "temp", cwd=tmp_path) as started:
            return started.wait()

    return command


@pytest.fixture
def split(advisor, tmp_path, monkeypatch):
    """Return a function that writes a script and analyses it, for a split of its ops."""
    monkeypatch.chdir(tmp_path)

    def analyze(script, *words):
        Path("train.py").write_text(script)
        words = ("--quick", "--candidates", "alternating-ops", "-q", *words)
        ran = advisor("analyze", "train.py", *words)
        assert ran.code == 0, ran.err

    return analyze


@pytest.fixture
def plain(tmp_path):
    """Writes the plain script, and an analysis of it that tells to split."""
    (tmp_path / "train.py").write_text(_PLAIN)
    return partial(written, tmp_path / "advisor-out" / "train", stand_in=True)


def test_a_script_that_is_to_stay_as_it_is_runs_as_under_python(plain, run):
    plain(verdict=AdviceVerdict.STAY_SINGLE)
    ran = run("train.py", "--", "--trial", "a b")
    assert ran.code == 3
    assert ran.out == "['--trial', 'a b'] __main__ train.py True\n"
    said = f"advisor: trains as it is: {TOWERS}; --candidate NAME splits it all the same"
    assert ran.err.splitlines() == [said, "to stderr"]


@pytest.mark.parametrize(
    ("is_terminal", "shown"), [(True, "\r\x1b[Kadvisor: x\n"), (False, "advisor: x\n")]
)
def test_in_a_terminal_a_message_takes_the_line_of_a_progress_bar(monkeypatch, is_terminal, shown):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("sys.stderr", stream)
    placed_script._say("x")
    assert stream.getvalue() == shown


def test_a_verdict_about_stand_ins_is_not_one_about_this_machine_unless_it_is_asked(plain, run):
    plain()
    ran = run("train.py")
    assert "stand in for others; --devices 2 tries it on this machine's CPU" in ran.err
    assert ran.code == 3


def test_what_cannot_be_run_is_said_in_one_error(tmp_path, monkeypatch, plain):
    monkeypatch.chdir(tmp_path)
    Path("other.py").write_text(_PLAIN)
    assert error_of("run", "no.py")[0] == "advisor: error: no.py: no such file"
    none = error_of("run", "other.py")[0]
    assert none == "advisor: error: other.py: advisor-out holds no analysis of it"
    plain()
    assert "no analysis of it" in error_of("run", "other.py")[0]
    assert "it has no split 'nine'" in error_of("run", "train.py", "--candidate", "nine")[0]
    assert "alternating" in error_of("run", "train.py", "--candidate", "alternating")[0]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no finished analysis" in error_of("run", "train.py", "--placement", str(empty))[0]
    (tmp_path / "file.json").write_text("{}")
    assert "file.json" in error_of("run", "train.py", "--placement", "file.json")[0]
    assert "as a script, not build of it" in error_of("analyze", "train.py:build", "--apply")[0]


def test_a_script_trains_with_a_split_and_the_analysis_keeps_what_it_brought(tmp_path, split, run):
    split(
        _TRAINS + "for i in range(200): loss = step(np.full((2, 4), i % 7, 'float32'))\n"
        "print(f'{float(loss):.5g}', float(tf.reduce_sum(right)))\n"
    )
    plain = run("train.py")
    assert "trains as it is" in plain.err
    ran = run("train.py", "--candidate", "alternating-ops", "--no-trial", "--profile", "logs")
    assert (ran.code, ran.out) == (0, plain.out), ran.err
    told = [line for line in ran.err.splitlines() if line.startswith("advisor: ")]
    assert ran.err.startswith("advisor: alternating-ops for step at train.py:12: the same as your")
    assert "steps with alternating-ops; no trial" in told[1]
    assert [line.split()[1] for line in told[2:]] == ["compute", "copies", "next"]
    (path,) = tmp_path.glob("advisor-out/*/analysis.json")
    document = json.loads(path.read_text())
    jsonschema.validate(document, load_schema("analysis"))
    assert document["training"]["candidate"] == "alternating-ops"
    assert document["training"]["placed_steps"] > 100
    assert "your training: " in run_here("show", str(path.parent)).out


_MIRRORED = """
import numpy as np, keras, tensorflow as tf
keras.utils.set_random_seed(3)
optimizer = keras.optimizers.Adam(0.01)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(optimizer, "mse")
x = np.random.default_rng(1).normal(size=(640, 8)).astype("float32")
fitted = model.fit(x, x.sum(1), batch_size=32, epochs=3, verbose=0)
print(*(f"{loss:.6f}" for loss in fitted.history["loss"]), tf.distribute.has_strategy())
"""


@pytest.mark.slow
def test_mirrored_trains_under_a_strategy_that_nobody_has_written(tmp_path, run):
    (tmp_path / "train.py").write_text(_MIRRORED)
    words = ("--candidates", "mirrored", "--rounds", "3", "-q")
    with Command("analyze", "train.py", *words, temp=tmp_path / "temp", cwd=tmp_path) as command:
        ran = command.wait()
        assert ran.code == 0, ran.err
    plain = run("train.py")
    ran = run("train.py", "--candidate", "mirrored")
    assert ran.code == 0, ran.err
    assert "mirrored: trains under a MirroredStrategy; no trial" in ran.err
    *losses, has_strategy = ran.out.split()
    assert has_strategy == "True"
    expected = [float(loss) for loss in plain.out.split()[:-1]]
    assert [float(loss) for loss in losses] == pytest.approx(expected, rel=1e-3)


_IN_PYTHON = (
    """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import placement_advisor
"""
    + _TRAINS
    + """
@tf.function
def total(): return tf.reduce_sum(left) + tf.reduce_sum(right)
def train():
    for i in range(120): step(np.full((2, 4), i % 7, "float32"))
train()
print(left.device[-5:], right.device[-5:], f"{float(total()):.5g}")
for _ in range(2):
    with placement_advisor.placed("out", candidate="alternating-ops", trial_steps=0):
        train()
    print(left.device[-5:], right.device[-5:], f"{float(total()):.5g}")
example = tf.TensorSpec((2, 4), tf.float32)
placed = placement_advisor.apply(step, "out", example, candidate="alternating-ops")
print({variable.device[-5:] for variable in (left, right)}, f"{float(placed(tf.ones((2, 4)))):.5g}")
print(placement_advisor.apply(step, "out") is step)
"""
)


def test_in_python_a_block_trains_with_the_split_and_leaves_all_where_it_was(tmp_path, split):
    split(_TRAINS + "for i in range(200): step(np.full((2, 4), i % 7, 'float32'))\n", "-o", "out")
    (tmp_path / "own.py").write_text(_IN_PYTHON)
    launch = f"import runpy; runpy.run_path({str(tmp_path / 'own.py')!r}, run_name='__main__')"
    with Command(temp=tmp_path / "temp", cwd=tmp_path, launch=launch) as command:
        ran = command.wait()
    assert ran.code == 0, ran.err
    before, first, second, applied, same = ran.out.splitlines()
    # Wherever variables were, they are again, and functions of before go on with them.
    assert [line[:11] for line in (before, first, second)] == ["CPU:0 CPU:0"] * 3
    assert len({before, first, second}) == 3
    assert "CPU:1" in applied
    assert same == "True"
    told = [line for line in ran.err.splitlines() if line.startswith("advisor: ")]
    assert sum("steps with alternating-ops" in line for line in told) == 2


def test_ctrl_c_reaches_the_script_which_ends_as_it_would(tmp_path, split):
    split(_FOREVER)
    words = ("run", "train.py", "--candidate", "alternating-ops", "--no-trial")
    with Command(*words, temp=tmp_path / "temp", cwd=tmp_path) as command:
        command.wait_for_line("training")
        os.kill(command.process.pid, signal.SIGINT)
        ran = command.wait()
    assert ran.out == "saved True\n"
    assert ran.code == -signal.SIGINT
    lines = ran.err.splitlines()
    assert "KeyboardInterrupt" in lines
    assert not [line for line in lines if "placement_advisor" in line and "File" in line]
    assert "steps with alternating-ops" in lines[-1]
