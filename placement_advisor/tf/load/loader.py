"""What the user points at -> one step to trace, and what it is run on.

A Python file is run, and what to analyse is looked for in it; other models are read. Runs in a
child: all of it is foreign.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.errors import ModelError
from placement_advisor.tf.load.find_step import WANTED, find_step
from placement_advisor.tf.load.frozen_graph import load_frozen_graph
from placement_advisor.tf.load.model_source import SourceKind, source_kind
from placement_advisor.tf.load.run_model_file import run_file
from placement_advisor.tf.load.saved_models import load_keras_file, load_saved_model

if TYPE_CHECKING:
    from placement_advisor.tf.load.loaded_step import LoadedStep


def load(
    path: str,
    *,
    name: str | None,
    mode: str | None,
    batch_size: int | None,
    outputs: tuple[str, ...] = (),
) -> LoadedStep:
    """Load what the path holds.

    Raises:
        ModelError: it fails, or holds nothing that can be analysed.
    """
    file = Path(path)
    kind = source_kind(file)
    if outputs and kind is not SourceKind.FROZEN_GRAPH:
        raise ModelError(
            f"{path}: --outputs names what a frozen graph (.pb) computes",
            hint=f"name an object of a Python file, or a signature, like this: {path}:NAME",
        )
    match kind:
        case SourceKind.PYTHON:
            namespace = run_file(file, WANTED)
            return find_step(file, namespace, name=name, mode=mode, batch_size=batch_size)
        case SourceKind.KERAS:
            return load_keras_file(file, name=name, mode=mode, batch_size=batch_size)
        case SourceKind.SAVED_MODEL:
            return load_saved_model(file, name=name, mode=mode, batch_size=batch_size)
        case SourceKind.FROZEN_GRAPH:
            return load_frozen_graph(
                file, name=name, mode=mode, batch_size=batch_size, outputs=outputs
            )
