"""A model file, loaded and traced in a child, and workers on which it runs."""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from placement_advisor.errors import ModelError
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

# Of models, as arguments of a command.
Names = Annotated[list[str] | None, typer.Argument()]
SAMPLES = Path(__file__).parents[2] / "sample_models"
_TIME_LIMIT_S = 600.0


def models_of(samples):
    return [SAMPLES / f"{name}.py" for name in samples or []] or sorted(SAMPLES.glob("*.py"))


def traced_model(source, bundle=None, trace=tracer.trace_workload):
    """Return the traced model, what runs it in ``bundle``; None if it has no such mode."""
    with Child("loader") as loader:
        try:
            called(loader, tracer.load_workload, source)
        except ModelError:
            return None
        return called(loader, trace, source.path, bundle and str(bundle))


@contextmanager
def on_workers(path, mode, workers=2, trace=tracer.trace_workload):
    """Give the traced model, and workers that have it as their program; None without that mode.

    ``trace`` may return more than the trace, behind it.
    """
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        bundle.mkdir()
        traced = traced_model(ModelSource(path=str(path), mode=mode), bundle, trace)
        if traced is None:
            yield None
            return
        testbed = Testbed(plan_testbed(TestbedKind.WORKERS, workers), scratch=Path(folder))
        graph = (traced[0] if isinstance(traced, tuple) else traced).graph
        testbed.add_program(STEP, bundle, graph)
        try:
            testbed.start()
            yield traced, testbed
        finally:
            testbed.close()


def called(child, function, *args):
    """Return what a child answers; end if it fails."""
    answer = child.call(function, *args, time_limit_s=_TIME_LIMIT_S)
    if isinstance(answer, CallFailure):
        raise SystemExit(f"{answer.message}\n{answer.output_tail}")
    return answer
