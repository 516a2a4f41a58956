"""What is said while an analysis runs: the time that is left, on one line that changes."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from placement_advisor.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from placement_advisor.analysis.progress import ProgressListener, TimeAhead


# GitHub's runner obeys a line that begins so, spaces left out, and `##[` wherever it stands.
_COMMAND_OF_A_RUNNER = re.compile(r"^(\s*)(?=::)|(?<=##)(?=\[)", re.MULTILINE)


_BAR_WIDTH = 20


def harmless(text: str) -> str:
    r"""Return text without what drives a terminal or a CI system; lines stay lines.

    >>> harmless("it's \x1b[31mred\x07" + "\n::error::forged")
    "it's �[31mred�\n\\::error::forged"
    """
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text.expandtabs())
    return _COMMAND_OF_A_RUNNER.sub(r"\1\\", shown)


class TimeLeft:
    """What was last expected to be ahead, and what is left of it."""

    def __init__(self) -> None:
        self._ahead: TimeAhead | None = None
        self._begun, self._since = 0.0, 0.0

    def expect(self, ahead: TimeAhead) -> None:
        """Begin to count it down."""
        self._since = time.monotonic()
        if self._ahead is None:
            self._begun = self._since
        self._ahead = ahead

    def share_done(self) -> float | None:
        """Return how much of all has passed, None where nothing is expected."""
        if self._ahead is None:
            return None
        now = time.monotonic()
        done_s, left_s = now - self._begun, self._ahead.left_s(now - self._since)
        return done_s / (done_s + left_s) if left_s else 1.0

    def text(self) -> str:
        """Return it in words, as an addition; nothing where nothing is expected."""
        if self._ahead is None:
            return ""
        left_s = self._ahead.left_s(time.monotonic() - self._since)
        text = f", {'up to' if self._ahead.is_most else 'about'} {format_duration(left_s)} left"
        if self._ahead.is_busy:
            text += ", longer while other work runs"
        return text


@contextmanager
def live_line(console: Console) -> Iterator[ProgressListener]:
    """Show progress while the block runs, on a terminal or in a notebook."""
    live = LiveLine(console)
    with console.status(live):
        yield live


class LiveLine:
    """One line that changes: a bar, the stage, and what is left of all or of what is counted."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._what, self._since = "", 0.0
        self._shown, self._counted = "starting", ""
        self._share: float | None = None
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
        self._counted, self._share = "", done / total if total > 1 else None
        if done:
            left_s = (now - self._since) / done * (total - done)
            self._counted = f", about {format_duration(left_s)} left"

    def expect(self, ahead: TimeAhead) -> None:
        """Show what is left of it from now on."""
        self._left.expect(ahead)

    def note(self, what: str) -> None:
        """Print it above the line that changes."""
        self._console.print(harmless(what), markup=False, highlight=False, soft_wrap=True)

    def __rich__(self) -> Table:
        """Return the line as it is at this moment."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        left = self._left.text() or self._counted
        share = self._left.share_done()
        share = self._share if share is None else share
        bar = [] if share is None else [ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH)]
        line = Table.grid(padding=(0, 1))
        line.add_row(*bar, Text(harmless(self._shown + left), no_wrap=True, overflow="ellipsis"))
        return line
