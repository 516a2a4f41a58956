"""What the command writes: messages that drive nothing, and a standard output that fails in words.

A message may hold names from a model, a file or an exception. None of it may move a terminal's
cursor, nor be taken for a command by the CI system that reads the log.
"""

from __future__ import annotations

import io
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
                f"standard output takes no more: {error.strerror}",
                hint="make room, or send the output elsewhere",
            ) from None


def open_output() -> None:
    """Make standard output fail as `_Output` says; one that is closed swallows what is written.

    Characters that its encoding lacks are written as question marks.
    """
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
