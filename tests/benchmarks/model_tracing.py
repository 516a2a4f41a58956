"""A model file, loaded and traced in a child, and workers on which it runs."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from placement_advisor.errors import ModelError
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

SAMPLES = Path(__file__).parents[2] / "sample_models"
_TIME_LIMIT_S = 300.0


def traced_model(path, mode, bundle):
    """Return the traced model, what runs it in ``bundle``; None if it has no such mode."""
    with Child("loader") as loader:
        try:
            called(loader, tracer.load_workload, ModelSource(path=str(path), mode=mode))
        except ModelError:
            return None
        return called(loader, tracer.trace_workload, str(path), str(bundle))


@contextmanager
def on_workers(path, mode, workers=2):
    """Give the traced model, and workers that have it as their program; None without that mode."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        bundle.mkdir()
        traced = traced_model(path, mode, bundle)
        if traced is None:
            yield None
            return
        testbed = Testbed(plan_testbed(TestbedKind.WORKERS, workers), scratch=Path(folder))
        testbed.add_program(STEP, bundle, traced.graph)
        try:
            testbed.start()
            yield traced, testbed
        finally:
            testbed.close()


def called(child, function, *args):
    """Return what a child answers; end if it fails."""
    return answered(child.call(function, *args, time_limit_s=_TIME_LIMIT_S))


def answered(answer):
    """Return an answer that is no failure; end if it is."""
    if isinstance(answer, CallFailure):
        raise SystemExit(f"{answer.message}\n{answer.output_tail}")
    return answer
