"""What the user points at -> one step to trace, and what it is run on.

A Python file is run, and seen at its first steps; where it runs none, or names what to analyse,
that is looked for in it. Other models are read. Runs in a child: all of it is foreign.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import is_user_code
from placement_advisor.tf.load.capture import Capture
from placement_advisor.tf.load.captured_step import captured
from placement_advisor.tf.load.find_step import WANTED, find_step
from placement_advisor.tf.load.frozen_graph import load_frozen_graph
from placement_advisor.tf.load.model_source import SourceKind, source_kind
from placement_advisor.tf.load.rerun import Rerun
from placement_advisor.tf.load.run_model_file import declares, run_file, run_program
from placement_advisor.tf.load.saved_models import load_keras_file, load_saved_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.tf.answers import CapturedCall
    from placement_advisor.tf.load.loaded_step import LoadedStep
    from placement_advisor.tf.load.model_source import ModelSource


def load(
    source: ModelSource,
    go_on: Callable[[Callable[[], LoadedStep]], None],
    again: tuple[CapturedCall, Sequence[Any]] | None = None,
) -> LoadedStep:
    """Load what the path holds.

    A program that trains is left standing within a step: ``go_on`` is called there with what
    returns that step, and is not to return. What was captured of it before, and the tensors of its
    batch, have it run ``again`` up to that call.

    Raises:
        ModelError: it fails, or holds nothing that can be analysed.
    """
    file = Path(source.path)
    kind = source_kind(file)
    name, mode, batch_size = source.name, source.mode, source.batch_size
    if source.outputs and kind is not SourceKind.FROZEN_GRAPH:
        raise ModelError(
            f"{file}: --outputs names what a frozen graph (.pb) computes",
            hint=f"name an object of a Python file, or a signature, like this: {file}:NAME",
        )
    if kind is not SourceKind.PYTHON and (source.arguments or source.step or source.module):
        raise ModelError(
            f"{file}: it is no script, so it takes no arguments behind --, no -m and no --step",
            hint="leave them out, or give the .py file of a script",
        )
    match kind:
        case SourceKind.PYTHON:
            return _of_python(file, source, go_on, again)
        case SourceKind.KERAS:
            return load_keras_file(file, name=name, mode=mode, batch_size=batch_size)
        case SourceKind.SAVED_MODEL:
            return load_saved_model(file, name=name, mode=mode, batch_size=batch_size)
        case SourceKind.FROZEN_GRAPH:
            return load_frozen_graph(
                file, name=name, mode=mode, batch_size=batch_size, outputs=source.outputs
            )


def _of_python(
    file: Path,
    source: ModelSource,
    go_on: Callable[[Callable[[], LoadedStep]], None],
    again: tuple[CapturedCall, Sequence[Any]] | None,
) -> LoadedStep:
    """Return what a file names, or what it does when it runs, or the model that it has then."""
    find = partial(
        find_step, file, name=source.name, mode=source.mode, batch_size=source.batch_size
    )

    def is_users(name: str) -> bool:
        return is_user_code(name, file)

    def stop(seen: Capture) -> None:
        go_on(lambda: captured(seen, source))

    capture = (
        Capture(is_users, stop, source.step) if again is None else Rerun(is_users, stop, *again)
    )
    if source.name is not None or declares(file, "workload"):
        with capture.watching(steps=False):
            return find(run_file(file, WANTED, arguments=source.arguments))
    with capture.watching():
        namespace = run_program(file, WANTED, arguments=source.arguments, module=source.module)
        capture.end()
    if capture.chosen() is not None:
        return captured(capture, source)
    return find(namespace)
