"""What a command writes to the terminal: its answer, and its progress on stderr.

Standard output that breaks (a closed pipe) ends a command quietly. Progress is one live line
on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from placement_advisor.errors import AdvisorError
from placement_advisor.report.progress import TimeLeft, harmless, live_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from placement_advisor.analysis.progress import ProgressListener, TimeAhead

Found = TypeVar("Found")


class ReaderGoneError(Exception):
    """Nobody reads standard output any more: `| head` has seen enough."""


def say(text: str) -> None:
    """Print a message about what goes on, or went wrong, on stderr."""
    print(harmless(f"advisor: {text}"), file=sys.stderr, flush=True)


def warn(warnings: Iterable[str]) -> None:
    """Print warnings on stderr."""
    for warning in warnings:
        say(f"warning: {warning}")


def print_json(value: object) -> None:
    """Print a value of a contract on standard output, for a program to read."""
    from placement_advisor.files.contract import json_text

    sys.stdout.write(json_text(value))


def answer(
    found: Found,
    published: Callable[[Found], object],
    text: Callable[[Found], str],
    *,
    as_json: bool,
) -> None:
    """Print what a command has found: its contract as JSON, or the text for people."""
    if as_json:
        print_json(published(found))
    else:
        sys.stdout.write(text(found))


@contextmanager
def text_output(
    file: Path | None, *, option: str = "-o", read: Path | None = None
) -> Iterator[Callable[[str], object]]:
    """Give what writes a text, into a file that ``option`` names, else on standard output.

    ``read`` is what the command reads, if anything.

    Raises:
        AdvisorError: the file cannot be written, or is the one that is read.
    """
    if file is None:
        yield sys.stdout.write
        return
    from placement_advisor.files.output import holding, output_file

    with output_file(file, option=option, read=read) as put:
        yield lambda text: put(holding(text))


class _Output(io.FileIO):
    """Standard output; where it takes no more, one error says so, and the rest is thrown away."""

    _takes_more = True

    def write(self, data: Any, /) -> int:
        """Write what can be written."""
        if not self._takes_more:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._takes_more = False
            raise ReaderGoneError from None
        except OSError as error:
            self._takes_more = False
            raise AdvisorError(
                f"standard output cannot be written: {error.strerror}",
                hint="make room, or send the output elsewhere",
            ) from None


class _Messages(io.FileIO):
    """Standard error; what it does not take is thrown away."""

    def write(self, data: Any, /) -> int:
        """Write what can be written."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_streams() -> None:
    """Make standard output fail as `_Output` says, and standard error never.

    What is closed swallows what is written to it. Characters that the encoding of standard output
    lacks are written as question marks.
    """
    for descriptor in (0, 1, 2):  # Else the next file would take its place.
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    _open_output()
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Messages(2, "w", closefd=False)),
            encoding=getattr(sys.stderr, "encoding", "utf-8"),
            errors="backslashreplace",
            line_buffering=True,
        )


def _open_output() -> None:
    standard = sys.__stdout__
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - to the end
        return
    if standard is None or sys.stdout is not standard:  # A caller of `main` has its own there.
        return
    standard.flush()
    buffer = io.BufferedWriter(_Output(standard.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(
        buffer, encoding=standard.encoding, errors="replace", line_buffering=buffer.isatty()
    )


@contextmanager
def progress(*, quiet: bool) -> Iterator[ProgressListener]:
    """Show progress while the block runs."""
    if quiet:
        from placement_advisor.analysis.progress import SilentListener

        yield SilentListener()
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with live_line(console) as live:
        yield live


class _Lines:
    """One line when something new begins."""

    def __init__(self) -> None:
        self._last = ""
        self._left = TimeLeft()

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Print the stage once, and what is left from there on."""
        if what != self._last:
            say(what + self._left.text())
        self._last = what

    def expect(self, ahead: TimeAhead) -> None:
        """Keep it for the next line."""
        self._left.expect(ahead)

    def note(self, what: str) -> None:
        """Print it."""
        say(what)
