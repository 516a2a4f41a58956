"""What the command writes: messages that drive nothing, and a standard output that fails in words.

A message may hold names from a model, a file or an exception. None of it may move a terminal's
cursor, nor be taken for a command by the CI system that reads the log.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from typing import Any

from placement_advisor.errors import AdvisorError

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
