"""`advisor show`: a finished analysis once more."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor import defaults
from placement_advisor.cli.output_streams import harmless
from placement_advisor.errors import AdvisorError
from placement_advisor.files.log_files import LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.report.screen import Line

# A step of a thousand candidates would not fill it.
_MOST_BYTES = 10_000_000

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="All of it: predictions, all reasons, copies.")
]


def show(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="What `advisor analyze` wrote, or a folder of several: the newest of them. "
            "Default: advisor-out.",
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Print a finished analysis again."""
    from placement_advisor.report.find_analysis import find_analysis

    print_analysis(find_analysis(folder or Path(defaults.OUTPUT)), verbose=verbose)


def print_analysis(folder: Path, *, verbose: bool) -> None:
    """Print the analysis that a folder holds, on one screen or in full.

    Raises:
        AdvisorError: a file of it cannot be read, or is none.
    """
    if verbose:
        sys.stdout.write(_full_text(folder))
        if (folder / LOG_FOLDER).is_dir():  # A quick analysis has none.
            view = f"In TensorBoard: advisor view {shlex.quote(str(folder))}"
            sys.stdout.write(f"{harmless(view)}\n")
        return
    from rich.console import Console

    from placement_advisor.report.find_analysis import read_analysis
    from placement_advisor.report.screen import screen
    from placement_advisor.results.analysis import ANALYSIS

    console = Console()
    lines = screen(read_analysis(folder / ANALYSIS), folder, console.width)
    sys.stdout.write(shown(lines, color=console.color_system is not None))


def shown(lines: Iterable[Line], *, color: bool) -> str:
    """Return lines as text that drives nothing, with codes for colour or without."""
    from rich.color import ColorSystem
    from rich.style import Style

    system = ColorSystem.STANDARD if color else None
    return "".join(
        f"{Style.parse(line.style).render(harmless(line.text), color_system=system)}\n"
        for line in lines
    )


def _full_text(folder: Path) -> str:
    from placement_advisor.files.foreign_file import content
    from placement_advisor.results.analysis import FULL_TEXT

    path = folder / FULL_TEXT
    try:
        return harmless(content(path, _MOST_BYTES).decode("utf-8", errors="replace"))
    except OSError as error:
        raise AdvisorError(
            f"{path}: cannot be read: {error.strerror}", hint="`advisor analyze` writes it"
        ) from None
