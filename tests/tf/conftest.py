"""Models traced once for all tests of TensorFlow's side. TensorFlow itself stays in children."""

from functools import cache
from pathlib import Path

import pytest
from traced_models import IMPORTS, MODELS, LimitedChild, trace

from placement_advisor.processes import children
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource


@pytest.fixture(scope="session", autouse=True)
def _fork_server():
    children.preload()


@pytest.fixture(scope="session")
def traced(tmp_path_factory):
    """Return a function that traces a model beside these tests or a sample, once for all tests."""

    @cache
    def traced_model(name, *, run=False):
        path = MODELS / f"{name}.py"
        if not path.exists():
            path = Path(__file__).parents[2] / "sample_models" / f"{name}.py"
        return trace(path, tmp_path_factory.mktemp(name), run=run)

    return traced_model


@pytest.fixture
def trace_source(write_model, tmp_path):
    """Return a function that traces a model file of that text below its imports."""

    def traced_source(source, *, run=False):
        return trace(write_model(IMPORTS + source), tmp_path, run=run)

    return traced_source


@pytest.fixture(scope="module")
def loader():
    """Return a child for all tests of a file."""
    with LimitedChild("loader") as own:
        yield own


@pytest.fixture
def child():
    """Return a child of its own."""
    with LimitedChild("child") as own:
        yield own


@pytest.fixture
def load_script(child, tmp_path):
    """Return a function that has the child load a script of that text, and returns its path."""

    def loaded(text, *arguments, **asked):
        path = tmp_path / "train.py"
        path.write_text(text)
        source = ModelSource(path=str(path), arguments=arguments, **asked)
        child.call(tracer.load_workload, source)
        return str(path)

    return loaded
