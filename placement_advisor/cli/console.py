"""What a command writes to the terminal: its answer, and its progress on stderr.

Standard output that breaks (a closed pipe) ends a command quietly. Progress is one live line
on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.report.progress import TimeLeft
from placement_advisor.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from placement_advisor.analysis.progress import ProgressListener, TimeAhead


# GitHub's runner obeys a line that begins so, spaces left out, and `##[` wherever it stands.
_COMMAND_OF_A_RUNNER = re.compile(r"^(\s*)(?=::)|(?<=##)(?=\[)", re.MULTILINE)


class ReaderGoneError(Exception):
    """Nobody reads standard output any more: `| head` has seen enough."""


def harmless(text: str) -> str:
    r"""Return text without what drives a terminal or a CI system; lines stay lines.

    >>> harmless("it's \x1b[31mred\x07" + "\n::error::forged")
    "it's �[31mred�\n\\::error::forged"
    """
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text.expandtabs())
    return _COMMAND_OF_A_RUNNER.sub(r"\1\\", shown)


def say(text: str) -> None:
    """Print a message about what goes on, or went wrong, on stderr."""
    print(harmless(f"advisor: {text}"), file=sys.stderr, flush=True)


def json_text(content: object) -> str:
    """Return what a program will read."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def print_json(content: object) -> None:
    """Print what a program will read on standard output."""
    sys.stdout.write(json_text(content))


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
    live = _Live(console)
    with console.status(live):
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


class _Live:
    """One line that changes, with the time left in all, or in what can be counted."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._what, self._since = "", 0.0
        self._shown, self._counted = "starting", ""
        self._left = TimeLeft()

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Show what goes on, and how far it is."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._since = what, now
        self._shown = what
        if total > 1:
            self._shown += f" {done + 1}/{total}"
        if candidate:
            self._shown += f", {candidate}"
        self._counted = ""
        if done:
            left_s = (now - self._since) / done * (total - done)
            self._counted = f", about {format_duration(left_s)} left"

    def expect(self, ahead: TimeAhead) -> None:
        """Show what is left of it from now on."""
        self._left.expect(ahead)

    def note(self, what: str) -> None:
        """Print it above the line that changes."""
        self._console.print(harmless(what), markup=False, highlight=False, soft_wrap=True)

    def __rich__(self) -> Text:
        """Return the line as it is at this moment."""
        from rich.text import Text

        left = self._left.text() or self._counted
        return Text(harmless(self._shown + left), no_wrap=True, overflow="ellipsis")
