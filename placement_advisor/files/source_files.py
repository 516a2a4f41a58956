"""The text of a project's files: what stands at a line, and which `tf.device` scope is around it.

Files are read as data, scopes by how lines are indented. Left out: scopes that are entered in
another way than by `with`, or whose `with` has its device on a line of its own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from placement_advisor.files import untrusted

if TYPE_CHECKING:
    from pathlib import Path

# Nobody edits a larger file by the line: it was generated.
_MAX_BYTES = 2_000_000
# What of a line is shown; a longer one holds data.
_MAX_CHARS = 120
_SCOPE = re.compile(r"(async )?with .*\bdevice\(")
_FUNCTION = re.compile(r"((async )?def|class) ")


class SourceFiles:
    """The files of a project at a folder, as far as they can be read."""

    def __init__(self, root: Path) -> None:
        """Take the folder that places are relative to."""
        self._root = root
        self._lines = cache(self._read)

    def text(self, file: str, line: int) -> str | None:
        """Return what stands at a line, None if that cannot be told."""
        lines = self._lines(file)
        if not 1 <= line <= len(lines):
            return None
        text = lines[line - 1].strip()
        return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"

    def find(self, file: str, words: str) -> int:
        """Return the first line of a file that holds these words, else the first of all."""
        lines = self._lines(file)
        return next((i for i, line in enumerate(lines, 1) if words in line), 1)

    def scope(self, file: str, line: int) -> int | None:
        """Return the line of the innermost `with` of a device around a line, in its function."""
        lines = self._lines(file)[:line]
        outside: int | None = None
        for number in range(len(lines), 0, -1):
            text = lines[number - 1]
            indent = len(text) - len(text.lstrip())
            if not text.strip() or (outside is not None and indent >= outside):
                continue
            outside = indent
            if _SCOPE.match(text.strip()):
                return number
            if _FUNCTION.match(text.strip()):
                return None
        return None

    def _read(self, file: str) -> list[str]:
        try:
            data = untrusted.read_plain(self._root / file, _MAX_BYTES)
        except (OSError, ValueError):
            return []
        return data.decode(errors="replace").splitlines()
