"""What goes on, on stderr: a live line on a terminal, plain lines elsewhere, with the time left."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from placement_advisor.cli.output_streams import harmless, say
from placement_advisor.report.progress import TimeLeft
from placement_advisor.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from placement_advisor.analysis.progress import ProgressListener, TimeAhead


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
