"""A model file loaded and traced in a child process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import ModelError, ScriptEndedError
from placement_advisor.processes.calls import (
    CallFailure,
    FailureCause,
    expect,
    is_user_code,
    register_secrets,
)
from placement_advisor.processes.children import Child, preload
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import SourceKind, source_kind

if TYPE_CHECKING:
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import Traced
    from placement_advisor.tf.load.model_source import ModelSource

_HINTS = {
    FailureCause.CRASHED: "the file's own code ended the process; run it with python to see why",
    FailureCause.TIMED_OUT: "raise --time-limit, or look for a loop that does not end",
    FailureCause.OUT_OF_MEMORY: "make the model or its example data smaller",
}


def traced_model(
    source: ModelSource, bundle: Path | None, loader: Child, watcher: ProgressReporter
) -> Traced:
    """Load and trace a model in the child; what is needed to run it goes into the folder, if any.

    Raises:
        ModelError: it cannot be loaded or traced, or not be run by others if that is asked for.
    """
    load_model(source, loader, watcher)
    traced = trace_loaded(source, bundle, loader, watcher)
    if bundle is not None:
        check_runs(traced, source)
    return traced


def check_runs(traced: Traced, source: ModelSource) -> None:
    """Check that processes other than the one that has loaded a step can run it.

    Raises:
        ModelError: it calls Python.
    """
    if traced.python_call is not None:
        raise ModelError(
            f"{source.path}: {traced.name}: {traced.python_call} calls Python, which stays with "
            "the process that made it: no placement of this step can run",
            hint="replace tf.py_function and tf.numpy_function by TensorFlow ops; `advisor "
            "analyze` predicts such a step",
        )


def load_model(source: ModelSource, loader: Child, watcher: ProgressReporter) -> None:
    """Load a model in the child, and say what was taken.

    Raises:
        ModelError: it cannot be loaded.
    """
    register_secrets(source.arguments)
    is_script = source_kind(Path(source.path)) is SourceKind.PYTHON
    limit_s = source.capture_timeout_s if is_script else source.time_limit_s
    path = source.path
    watcher.working(f"running {path} up to its steps" if is_script else f"loading {path}", 0, 1)
    try:
        chosen = loader.call(tracer.load_workload, source, time_limit_s=limit_s)
    except ScriptEndedError as error:
        printed = loader.printed.strip()
        said = f"; it printed:\n{printed}" if printed else ""
        raise ScriptEndedError(f"{error.message}{said}", hint=error.hint) from None
    if is_script and isinstance(chosen, CallFailure) and chosen.cause is FailureCause.TIMED_OUT:
        place = _place(chosen, Path(path))
        raise ModelError(
            f"{place}: no step was seen within {limit_s:g} s",
            hint="wait longer with --capture-timeout SECONDS (advisor check: --time-limit), or "
            "have the script reach its first step sooner; a loop without fit, a tf.function and a "
            "tf.GradientTape has none that can be seen",
        )
    watcher.note(f"{path}: {expect(chosen, partial(child_ended, source, 'loading'))}")


def trace_loaded(
    source: ModelSource, bundle: Path | None, loader: Child, watcher: ProgressReporter
) -> Traced:
    """Trace the model that the child has loaded; see `traced_model`.

    Raises:
        ModelError: it cannot be traced.
    """
    watcher.working("tracing", 0, 1)
    answer = loader.call(
        tracer.trace_workload,
        source.path,
        None if bundle is None else str(bundle),
        time_limit_s=source.time_limit_s,
    )
    traced = expect(answer, partial(child_ended, source, "tracing"))
    return replace(traced, printed=loader.printed)


def trace_model(source: ModelSource, watcher: ProgressReporter) -> Traced:
    """Load and trace a model in a child of its own; nothing is kept to run it.

    Raises:
        ModelError: it cannot be loaded or traced.
    """
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        return traced_model(source, None, loader, watcher)


def child_ended(source: ModelSource, stage: str, failure: CallFailure) -> ModelError:
    """Return what to say of a child that runs the user's file and has ended."""
    place = _place(failure, Path(source.path))
    printed = failure.output_tail.strip()
    tail = f"\nIt last printed:\n{printed}" if printed else ""
    return ModelError(
        f"{place}: {stage} failed: {failure.message}{tail}", hint=_HINTS[failure.cause]
    )


def _place(failure: CallFailure, path: Path) -> str:
    """Return the file and line of the user's code that ran last, if known, else the model file."""
    for file, line in failure.stack:
        if is_user_code(file, path):
            return f"{file}:{line}"
    return str(path)
