"""A model file, loaded and traced in a child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.tf.answers import Traced

_TIME_LIMIT_S = 300.0


def traced_model(path: Path, mode: str, bundle: Path) -> Traced | None:
    """Return the traced model, what runs it in ``bundle``; None if it has no such mode."""
    with Child("loader") as loader:
        try:
            called(loader, tracer.load_workload, ModelSource(path=str(path), mode=mode))
        except ModelError:
            return None
        traced: Traced = called(loader, tracer.trace_workload, str(path), str(bundle))
    return traced


def called(child: Child, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a child answers; end if it fails."""
    return answered(child.call(function, *args, time_limit_s=_TIME_LIMIT_S))


def answered(answer: Any) -> Any:
    """Return an answer that is no failure; end if it is."""
    if isinstance(answer, CallFailure):
        raise SystemExit(f"{answer.message}\n{answer.output_tail}")
    return answer
