"""What the user points at: a path, what to take from it, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from placement_advisor.defaults import CAPTURE_TIMEOUT_S, TIME_LIMIT_S
from placement_advisor.errors import ModelError

_KINDS = (
    "give a .py file that builds a model, a .keras file, a SavedModel directory, or a frozen "
    "graph as a .pb file"
)
_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")


class SourceKind(StrEnum):
    """What a path holds."""

    PYTHON = "python"
    KERAS = "keras"
    SAVED_MODEL = "saved-model"
    FROZEN_GRAPH = "frozen-graph"


_SUFFIXES = {
    ".py": SourceKind.PYTHON,
    ".keras": SourceKind.KERAS,
    ".pb": SourceKind.FROZEN_GRAPH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from, and what of it is analysed.

    ``name`` is the object of a Python file or the signature of a SavedModel, ``mode`` "train" or
    "infer"; None leaves the choice to the loader. ``outputs`` name ops or tensors of a frozen
    graph. ``time_limit_s`` holds for loading and for tracing, each.

    A Python file runs with ``arguments``, as ``module`` if one is named, for ``capture_timeout_s``
    at most until its steps are seen, of which ``step`` is taken; None takes the dearest.
    """

    path: str
    name: str | None = None
    mode: str | None = None
    batch_size: int | None = None
    outputs: tuple[str, ...] = ()
    time_limit_s: float = TIME_LIMIT_S
    arguments: tuple[str, ...] = ()
    module: str | None = None
    step: str | None = None
    capture_timeout_s: float = CAPTURE_TIMEOUT_S


def split_name(words: str) -> tuple[str, str | None]:
    """Split ``PATH[:NAME]``. A path may hold colons itself if it exists.

    Raises:
        ModelError: there is no path.
    """
    path, colon, name = words.rpartition(":")
    if not colon or Path(words).exists():
        path, name = words, ""
    if not path:
        raise ModelError(f"{words!r}: no file given", hint="advisor analyze model.py")
    return path, name or None


def module_path(name: str) -> str:
    """Return the file that `python -m` would run, of a module below the current folder.

    Raises:
        ModelError: there is none.
    """
    base = Path(*name.split("."))
    for path in (base.with_name(f"{base.name}.py"), base / "__main__.py"):
        if path.is_file():
            return str(path)
    raise ModelError(
        f"-m {name}: no such module below {Path.cwd()}",
        hint="run it from the folder above the package",
    )


def source_kind(path: Path) -> SourceKind:
    """Return what the path holds, by its name alone.

    Raises:
        ModelError: nothing is there, or nothing that a model can be read from.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_dir():
        return _folder_kind(path)
    if not path.is_file():
        raise ModelError(f"{path}: not a file", hint=_KINDS)
    kind = _SUFFIXES.get(path.suffix)
    if path.name in _SAVED_MODEL_FILES:
        raise ModelError(
            f"{path}: part of a SavedModel, which is read as a whole",
            hint=f"give its directory: {path.parent}",
        )
    if kind is None:
        raise ModelError(f"{path}: not a model file", hint=_KINDS)
    return kind


def _folder_kind(path: Path) -> SourceKind:
    if any((path / name).is_file() for name in _SAVED_MODEL_FILES):
        return SourceKind.SAVED_MODEL
    below = sorted({file.parent for n in _SAVED_MODEL_FILES for file in path.glob(f"*/{n}")})
    if below:
        raise ModelError(f"{path}: holds several SavedModels", hint=f"give one: {below[-1]}")
    raise ModelError(f"{path}: a directory without a saved_model.pb", hint=_KINDS)
