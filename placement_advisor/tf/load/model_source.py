"""Describes the source that you name and runs its file; free of TensorFlow.

A source is a path, what to take from it, and how. An error in the user's file is shown with
the user's own lines only, and with a hint.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import inspect
import re
import sys
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from placement_advisor.defaults import CAPTURE_TIMEOUT_S, TIME_LIMIT_S
from placement_advisor.errors import ModelError, ScriptEndedError
from placement_advisor.processes.calls import is_ours, is_user_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.tf.answers import SourceLine


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

    @property
    def file(self) -> Path:
        """The path."""
        return Path(self.path)


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


_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_FRAME_IN_MESSAGE = re.compile(r' *File "(?P<file>[^"]+)", line \d+, in .*\n.*\n')
_NOT_MAIN = 'put the code that should only run as a script under `if __name__ == "__main__":`'
_ARGUMENTS = "give the script's own arguments behind --: advisor analyze train.py -- --data FILE"
_PYTORCH = (
    "advisor reads models of TensorFlow and Keras, not of PyTorch. For a PyTorch program, give "
    "`advisor profile` the trace that its profiler saved"
)
# What TensorFlow says when Python code cannot become a graph, and what to do about it.
_HINTS = {
    r"has no attribute 'numpy'|numpy\(\) is only available|symbolic tf\.Tensor.*to a numpy array": (
        "the step is traced as a graph, where tensors have no values yet. Use TensorFlow ops "
        "instead of .numpy() and NumPy, or do this outside the step"
    ),
    r"as a Python `bool`|Iterating over a symbolic|cannot be interpreted as an integer": (
        "Python cannot decide or count by a tensor's value while the step is traced: use tf.cond, "
        "tf.while_loop, tf.where or tf.range"
    ),
    r"Unable to lift tensor|singleton tf\.Variables|tf\.Variable on the first call": (
        "create variables once, outside the step"
    ),
    r"incompatible|Dimensions must be equal|must be (at least )?rank|have the same shape|"
    r"expects \d+ input|expected shape|Cannot reshape|must match": (
        "check that the example inputs have the shapes and the structure that the model takes; a "
        "batch for a Keras model is (x, y)"
    ),
}


def run_file(path: Path, wanted: str, *, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Import a Python file and return its names. ``wanted`` says what should be in it.

    Raises:
        ModelError: the file fails.
    """
    # A name of its own: the user's file may be called like a module that something else imports.
    spec = importlib.util.spec_from_file_location(f"_model_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: not a Python file", hint=wanted)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    with _as_theirs(path, wanted, "loaded"):
        _run(module, [str(path), *arguments], spec.loader.get_code(spec.name))  # type: ignore[attr-defined]
    return vars(module)


def run_program(
    path: Path, wanted: str, *, arguments: Sequence[str], module: str | None
) -> dict[str, Any]:
    """Run a file as `execute` does, and show its errors as the user's; return its names.

    Raises:
        ModelError: it fails.
    """
    main = ModuleType("__main__")
    with _as_theirs(path, wanted, "run"):
        execute(main, path, arguments, module)
    return vars(main)


def execute(main: ModuleType, path: Path, arguments: Sequence[str], module: str | None) -> None:
    """Run a file as `python FILE ARGUMENTS` would, or ``module`` as `python -m`.

    ``main`` is an empty module for it. It stays `__main__`, where functions and classes look names
    up for as long as they are used.

    Raises:
        ModelError: there is no such module.
        BaseException: whatever the file raises.
    """
    if module is None:
        sys.path.insert(0, str(path.resolve().parent))
        code = compile(path.read_bytes(), str(path.absolute()), "exec", dont_inherit=True)
    else:
        sys.path.insert(0, str(Path.cwd()))
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
        if spec is None or spec.loader is None:
            raise ModelError(f"-m {module}: no such module")
        code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    main.__file__ = str(path.absolute())
    vars(main)["__builtins__"] = builtins
    _run(main, [str(path), *arguments], code)


def _run(module: ModuleType, argv: list[str], code: CodeType) -> None:
    sys.argv = argv
    sys.modules[module.__name__] = module
    exec(code, vars(module))


@contextlib.contextmanager
def _as_theirs(path: Path, wanted: str, what: str) -> Iterator[None]:
    """Turn errors of the user's code into ones that show their lines."""
    if _holds_null_bytes(path):  # Pythons differ in what they say of it.
        raise ModelError(f"{path}: not a Python file: it holds null bytes", hint=wanted)
    try:
        yield
    except ModelError:
        raise
    except SystemExit as error:
        if what == "run" and error.code in (None, 0):
            return
        if what == "run":
            raise ScriptEndedError(
                f"{path}: the script ended with sys.exit({error.code!r}) before its first step",
                hint=_ARGUMENTS,
            ) from None
        raise ModelError(
            f"{path}: the file called sys.exit({error.code!r}) while it was {what}"
            f"{_where(error, path)}",
            hint=_NOT_MAIN,
        ) from None
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}" if error.filename else str(path)
        raise ModelError(f"{where}: not valid Python: {error.msg}") from None
    except MemoryError as error:
        raise ModelError(f"{path}: out of memory while loading{_where(error, path)}") from None
    except BaseException as error:
        raise ModelError(f"{path}: {describe(error, path)}", hint=_loading_hint(error)) from None


def _holds_null_bytes(path: Path) -> bool:
    with contextlib.suppress(OSError):  # What runs the file says why it cannot be read.
        return b"\0" in path.read_bytes()
    return False


def _loading_hint(error: BaseException) -> str | None:
    """Return what to do about an error of a file that is loaded, None if that is unclear."""
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        return _PYTORCH if name == "torch" else "install it in the same environment as advisor"
    if isinstance(error, NameError) and error.name == "get_ipython":
        return "magics run only in notebooks: delete these lines"
    last = traceback.extract_tb(error.__traceback__)[-1:]
    lacks = isinstance(error, IndexError) and any("argv" in (frame.line or "") for frame in last)
    return _ARGUMENTS if lacks else None


def hint_for_none(namespace: dict[str, Any]) -> str | None:
    """Return why a file seems to hold no model, None if that is unclear."""
    modules = {_module_of(value).partition(".")[0] for value in namespace.values()}
    return _PYTORCH if "torch" in modules else None


def _module_of(value: Any) -> str:
    name = value.__name__ if inspect.ismodule(value) else type(value).__module__
    return name if isinstance(name, str) else ""


def declares(path: Path, name: str) -> bool:
    """Return whether a file makes something of that name at its top level, without running it."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # What runs it says what is wrong.
        return False
    for statement in body:
        match statement:
            case ast.FunctionDef(name=made) if made == name:
                return True
            case ast.Assign(targets=made) if name in [getattr(each, "id", None) for each in made]:
                return True
            case ast.ImportFrom(names=made) if name in [each.asname or each.name for each in made]:
                return True
    return False


def describe(error: BaseException, path: Path) -> str:
    """Return the error with the part of its traceback that lies in the user's code.

    TensorFlow writes the stack of a traced function into the message; our part is cut out.
    """
    text = _COLORS.sub("", "".join(traceback.format_exception_only(error))).strip()
    text = _FRAME_IN_MESSAGE.sub(lambda frame: "" if is_ours(frame["file"]) else frame[0], text)
    return f"{text}{_where(error, path)}"


def seen_from_here(file: str) -> str:
    """Return a file's path as seen from the current folder, if it is below."""
    for path in (Path(file).absolute(), Path(file).resolve()):  # It may lie behind a link.
        with contextlib.suppress(ValueError):
            return str(path.relative_to(Path.cwd()))
    return file


def shown_line(line: SourceLine) -> str:
    """Return a line as ``train.py:14``, its file as seen from the current folder."""
    return f"{seen_from_here(line.file)}:{line.line}"


def hint_for(error: BaseException) -> str | None:
    """Return what to do about an error while a step is built or traced, None if that is unclear."""
    text = str(error)
    return next((hint for words, hint in _HINTS.items() if re.search(words, text)), None)


def _where(error: BaseException, path: Path) -> str:
    """Return the user's frames, outermost first: from the model file to the user's last line.

    Keras raises errors of its own in place of the user's, which are then their context.
    """
    found: BaseException | None = error
    while found is not None:
        frames = traceback.extract_tb(found.__traceback__)
        own = [
            traceback.FrameSummary(
                seen_from_here(frame.filename), frame.lineno, frame.name, line=frame.line
            )
            for frame in frames
            if is_user_code(frame.filename, path)
        ]
        if own:
            return "\n" + "".join(traceback.format_list(own)).rstrip()
        found = found.__cause__ or found.__context__
    return ""
