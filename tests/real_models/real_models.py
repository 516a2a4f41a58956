"""Models loaded and traced at their real size, and what Keras says about them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

keras_facts = RemoteModule("keras_facts")
MODELS = Path(__file__).parent / "models"
# DenseNet takes half a minute on a quiet core.
_TIME_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealModel:
    """A traced step, and the facts about its model, for a step of a Keras model."""

    traced: Traced
    facts: dict[str, Any] | None

    @property
    def graph(self):
        return self.traced.graph


def load_and_trace(path, folder, *, batch_size=None, facts=False):
    """Load and trace a model in a child; ``folder`` takes what that writes."""
    with Child("loader") as loader:

        def ask(function, *arguments):
            return loader.call(function, *arguments, time_limit_s=_TIME_LIMIT_S)

        ask(tracer.load_workload, ModelSource(path=str(path), batch_size=batch_size))
        traced = ask(tracer.trace_workload, str(path), str(folder))
        assert isinstance(traced, Traced), traced
        return RealModel(traced=traced, facts=ask(keras_facts.facts) if facts else None)


def saved(name, folder, form):
    """Have Keras save one of the models here as ``saved_model`` or ``keras``; return where."""
    path = folder / (name if form == "saved_model" else f"{name}.keras")
    with Child("keras") as child:
        source = str(MODELS / f"{name}.py")
        child.call(keras_facts.save, source, str(path), form, time_limit_s=_TIME_LIMIT_S)
    return path
