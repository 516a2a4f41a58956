"""A model file loaded and traced in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.clock import Clock
from placement_advisor.errors import ModelError
from placement_advisor.processes.children import Child, ChildFailure, preload
from placement_advisor.processes.user_code import is_user_code

if TYPE_CHECKING:
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.answers import Traced
    from placement_advisor.tf.load.model_source import ModelSource

_TRACER = "placement_advisor.tf.trace.tracer"


def traced_model(
    source: ModelSource, bundle: Path | None, loader: Child, clock: Clock, watcher: Watcher
) -> Traced:
    """Load and trace a model in the child; what is needed to run it goes into the folder, if any.

    Raises:
        ModelError: it cannot be loaded or traced.
    """
    with clock.stage("load"):
        watcher.working(f"loading {source.path}", 0, 1)
        answer = loader.call(
            f"{_TRACER}:load_workload",
            source.path,
            source.name,
            source.mode,
            source.batch_size,
            source.outputs,
            time_limit_s=source.time_limit_s,
        )
        watcher.note(f"{source.path}: {must_answer(answer, source, 'loading')}")
    with clock.stage("trace"):
        watcher.working("tracing", 0, 1)
        answer = loader.call(
            f"{_TRACER}:trace_workload",
            source.path,
            None if bundle is None else str(bundle),
            time_limit_s=source.time_limit_s,
        )
        traced: Traced = must_answer(answer, source, "tracing")
    return traced


def trace_model(source: ModelSource, watcher: Watcher) -> Traced:
    """Load and trace a model in a child of its own; nothing is kept to run it.

    Raises:
        ModelError: it cannot be loaded or traced.
    """
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        return traced_model(source, None, loader, Clock(), watcher)


def must_answer(answer: Any, source: ModelSource, stage: str) -> Any:
    """Return the answer of a child that runs the user's file.

    Raises:
        ModelError: the child has ended instead.
    """
    if not isinstance(answer, ChildFailure):
        return answer
    place = _place(answer, Path(source.path))
    hints = {
        "crashed": "the file's own code ended the process; run it with python to see why",
        "timed-out": "raise --time-limit, or look for a loop that does not end",
        "out-of-memory": "make the model or its example data smaller",
    }
    tail = f"\nIt last printed:\n{answer.output_tail.strip()}" if answer.output_tail.strip() else ""
    raise ModelError(f"{place}: {stage} failed: {answer.message}{tail}", hint=hints[answer.cause])


def _place(failure: ChildFailure, path: Path) -> str:
    """Return the file and line of the user's code that ran last, if known, else the model file."""
    for file, line in failure.stack:
        if is_user_code(file, path):
            return f"{file}:{line}"
    return str(path)
