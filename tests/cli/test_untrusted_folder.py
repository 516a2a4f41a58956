"""The command in a folder that a stranger has filled: its modules and settings are not ours."""

import os
import subprocess
import sys

import pytest
from command_runs import _ROOT, LAUNCH
from layer_models import model

from placement_advisor.report.tensorboard.server import tensorboard

# Names that the command, its children or TensorFlow import, and that a model's folder may have too.
NAMES = ("json", "queue", "keras", "numpy", "yaml", "tensorboard", "placement_advisor")
TRAP = "import pathlib; pathlib.Path({path!r}).touch()\n"
MODEL = """
import tensorflow as tf

weights = tf.Variable([[1.0]])


@tf.function
def step(x):
    return x @ weights


inputs = (tf.ones((4, 1)),)
"""


@pytest.fixture
def checkout(tmp_path):
    """A folder whose modules leave a file beside it when they are run."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(TRAP.format(path=str(tmp_path / f"{name} ran")))
    return folder


def advisor(checkout, *words):
    """Run the command as its installed script does, which leaves the current folder out."""
    return subprocess.run(
        [sys.executable, "-P", "-c", LAUNCH, *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def trapped(checkout):
    """Return what ran that should not have."""
    return [path.name for path in checkout.parent.glob("* ran")]


@pytest.mark.slow
def test_tracing_a_model_runs_no_module_of_the_current_folder(checkout):
    path = checkout.parent / "models" / "model.py"
    path.parent.mkdir()
    path.write_text(MODEL)
    ran = advisor(checkout, "trace", str(path))
    assert ran.returncode == 0, ran.stderr
    assert trapped(checkout) == []


def test_tensorboard_runs_no_module_of_the_current_folder(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    with tensorboard(checkout.parent, "localhost", 0) as (address, _):
        assert address.startswith("http://")
    assert trapped(checkout) == []


def test_matplotlibs_settings_in_the_current_folder_change_no_picture(checkout):
    model("in1 -> a", "in2 -> b", "a b -> dot").save(checkout / "two.graph.json.gz")
    assert advisor(checkout, "graph", "two.graph.json.gz", "--png", "plain.png").returncode == 0
    (checkout / "matplotlibrc").write_text("text.usetex: true\naxes.facecolor: red\n")
    ran = advisor(checkout, "graph", "two.graph.json.gz", "--png", "theirs.png")
    assert ran.returncode == 0, ran.stderr
    assert (checkout / "theirs.png").read_bytes() == (checkout / "plain.png").read_bytes()
