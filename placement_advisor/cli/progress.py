"""What goes on, on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from placement_advisor.cli.output_streams import harmless, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.status import Status

    from placement_advisor.testbed.trial import Watcher


@contextmanager
def progress(*, quiet: bool) -> Iterator[Watcher]:
    """Show progress while the block runs."""
    if quiet:
        from placement_advisor.testbed.trial import SilentWatcher

        yield SilentWatcher()
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with console.status("starting") as status:
        yield _Live(status)


class _Lines:
    """One line when something new begins."""

    def __init__(self) -> None:
        self._last = ""

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Print the stage once."""
        if what != self._last:
            say(what)
        self._last = what

    def note(self, what: str) -> None:
        """Print it."""
        say(what)


class _Live:
    """One line that changes, with the time left in what can be counted."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._what, self._since = "", 0.0

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Show the stage, how far it is, and how long it will take."""
        from rich.markup import escape

        now = time.monotonic()
        if what != self._what:
            self._what, self._since = what, now
        text = escape(what)
        if total > 1:
            text += f" {done + 1}/{total}"
        if candidate:
            text += f", {escape(candidate)}"
        if done:
            left_s = (now - self._since) / done * (total - done)
            text += f", about {left_s:.0f} s left"
        self._status.update(harmless(text))

    def note(self, what: str) -> None:
        """Print it above the line that changes."""
        self._status.console.print(harmless(what), markup=False, highlight=False, soft_wrap=True)
