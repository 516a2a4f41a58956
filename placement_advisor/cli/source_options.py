"""The options that several commands have."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any

import typer
import typer.core

from placement_advisor.errors import AdvisorError
from placement_advisor.tf.load.model_source import ModelSource, module_path, split_name
from placement_advisor.units import parse_bytes


class Mode(StrEnum):
    """What to analyse."""

    TRAIN = "train"
    INFER = "infer"


Model = Annotated[
    str,
    typer.Argument(
        metavar="PATH[:NAME]",
        help="Python script, with its own arguments behind -- (NAME: what in it, without running "
        "it as a script), .keras file, SavedModel directory (NAME: its signature) or frozen graph "
        "(.pb).",
    ),
]
Module = Annotated[
    bool, typer.Option("-m", "--module", help="PATH names a module, as in python -m.")
]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Step of the script to take: a model, a function, or a line, as train.py:14. Default: "
        "what trains, of several the one that takes most time.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Samples per step. Default: as in the example inputs, else 32."),
]
ModeChoice = Annotated[
    Mode | None,
    typer.Option(help="Training step or inference. Default: train if the model is compiled."),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C", help="What a frozen graph should compute: names of ops or tensors."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
OpenPorts = Annotated[
    bool,
    typer.Option(
        "--open-ports",
        help="Run workers even where the system gives them no private network. Anyone who reaches "
        "them over the network can then read and write your files.",
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="Allowed for tracing the step, and for loading a model that is no script.",
    ),
]
CaptureTimeout = Annotated[
    float,
    typer.Option(
        min=1, metavar="SECONDS", help="How long a script may run until its steps are seen."
    ),
]
# Those of the command that runs.
_arguments: ContextVar[tuple[str, ...]] = ContextVar("_arguments", default=())


class OfScript(typer.core.TyperCommand):
    """A command of a script, whose own arguments stand behind ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the script's arguments away before the rest is parsed."""
        at = args.index("--") if "--" in args else len(args)
        _arguments.set(tuple(args[at + 1 :]))
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what the usage line has."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


def script_arguments() -> tuple[str, ...]:
    """Return what stands behind ``--``."""
    return _arguments.get()


def model_source(
    model: str,
    *,
    module: bool,
    step: str | None,
    mode: Mode | None,
    batch_size: int | None,
    outputs: str | None,
    time_limit: float,
    capture_timeout: float,
) -> ModelSource:
    """Return where the model comes from.

    Raises:
        ModelError: there is no path, or no such module.
        AdvisorError: outputs are given, but none is named.
    """
    path, name = (module_path(model), None) if module else split_name(model)
    return ModelSource(
        path=path,
        name=name,
        mode=None if mode is None else mode.value,
        batch_size=batch_size,
        outputs=split_names("--outputs", outputs) if outputs is not None else (),
        time_limit_s=time_limit,
        arguments=_arguments.get(),
        module=model if module else None,
        step=step,
        capture_timeout_s=capture_timeout,
    )


def split_names(option: str, words: str) -> tuple[str, ...]:
    """Split the value of an option that takes names with commas between them.

    Raises:
        AdvisorError: there is no name in it.
    """
    names = tuple(name.strip() for name in words.split(",") if name.strip())
    if not names:
        raise AdvisorError(f"{option} names none", hint=f"e.g. {option} first,second")
    return names


def split_ratios(option: str, words: str) -> tuple[float, ...]:
    """Split the value of an option that takes numbers with colons between them.

    Raises:
        AdvisorError: something in it is no number.
    """
    try:
        return tuple(float(word) for word in words.split(":"))
    except ValueError:
        raise AdvisorError(f"{option} {words}: not numbers", hint=f"e.g. {option} 3:2") from None


def split_sizes(option: str, words: str) -> tuple[int, ...]:
    """Split the value of an option that takes sizes in bytes with colons between them.

    Raises:
        AdvisorError: something in it is no size, or zero.
    """
    try:
        sizes = tuple(parse_bytes(word) for word in words.split(":"))
    except ValueError as error:
        raise AdvisorError(f"{option} {words}: {error}", hint=f"e.g. {option} 16GB:8GB") from None
    if 0 in sizes:
        raise AdvisorError(f"{option} {words}: a device has no memory", hint="leave it out")
    return sizes
