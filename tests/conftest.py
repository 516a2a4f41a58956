import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import sample_calibration
from command_runs import children_left, run_here
from drawn_cases import AT_NIGHT
from hypothesis import HealthCheck, settings

from placement_advisor.machine import calibration, this_machine
from placement_advisor.machine.calibration import calibration_fingerprint
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.children import preload

# A busy machine, or bad luck in drawing examples, is no fault of what is tested.
_NO_FAULTS = [HealthCheck.filter_too_much, HealthCheck.too_slow]
_PATIENT = settings(deadline=None, suppress_health_check=_NO_FAULTS)
# All of them with `--hypothesis-profile=nightly`.
settings.register_profile("nightly", _PATIENT, max_examples=AT_NIGHT)
settings.register_profile("daily", _PATIENT, max_examples=AT_NIGHT // 5)
settings.load_profile("daily")

# Long files at the end of the alphabet begin first, lest all wait for the last one.
_FIRST = (
    "test_placed_training.py",
    "test_make_parallel.py",
    "test_capture.py",
    "test_sample_models.py",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in _FIRST)


TWO_TOWERS = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
left, right = keras.Input((64,), 32, name="left"), keras.Input((64,), 32, name="right")

def tower(inputs, name):
    hidden = keras.layers.Dense(64, activation="relu", name=f"{name}_hidden")(inputs)
    return keras.layers.Dense(16, name=f"{name}_top")(hidden)

score = keras.layers.Dot(axes=1, name="score")([tower(left, "left"), tower(right, "right")])
model = keras.Model([left, right], score, name="two_towers")
model.compile(optimizer="adam", loss="mean_squared_error")
values = np.random.default_rng(7).normal(size=(1_600, 64)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices(((values, values[::-1]), values[:, :1])).batch(32)
"""


@pytest.fixture(scope="session", autouse=True)
def _an_idle_machine():
    """Have commands in this process say nothing of what else this machine does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(this_machine, "other_work", lambda: this_machine.OtherWork(cores=0.0))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_the_user(tmp_path_factory):
    """Keep calibrations of this run away from the user's, and theirs away from this run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with pytest.MonkeyPatch.context() as patch:
        if "MPLCONFIGDIR" not in os.environ:
            # Matplotlib takes seconds to list the system's fonts, and says so where they are many.
            patch.setenv("MPLCONFIGDIR", str(cache / "matplotlib"))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        # On a busy machine each run would calibrate anew, for half a minute.
        patch.setattr(calibration, "UNSTEADY_P90", float("inf"))
        for kind in (TestbedKind.WORKERS, TestbedKind.LOGICAL_CPUS):
            plan = replace(plan_testbed(kind, 2), kind=kind)
            sample_calibration.of(plan).save(calibration_fingerprint(plan), testbed=kind)
        yield


@pytest.fixture(scope="module")
def empty_cache(tmp_path_factory):
    """Without calibrations, so that the first run measures one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("empty-cache")))
        yield


@pytest.fixture(scope="session")
def two_towers(tmp_path_factory):
    """The file of a small compiled model whose two towers meet in a dot product."""
    path = tmp_path_factory.mktemp("models") / "two_towers.py"
    path.write_text(TWO_TOWERS)
    return path


@pytest.fixture
def write_model(tmp_path):
    """Writes the code of a model file."""

    def write(code):
        path = tmp_path / "model.py"
        path.write_text(code)
        return path

    return write


@pytest.fixture(scope="session")
def fork_server():
    """Start the import of TensorFlow while the first tests that need it get ready."""
    preload()


@pytest.fixture
def advisor(fork_server, tmp_path, monkeypatch):
    """Runs the command in this process; nothing may be left running or lying about afterwards."""
    temp = tmp_path / "temp"
    temp.mkdir()
    # Multiprocessing keeps its own folder from the first run to the end of this process.
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    yield run_here
    assert children_left() == []
    left = [p.name for p in temp.iterdir() if not p.name.startswith(("pymp-", "__pycache__"))]
    assert left == []
