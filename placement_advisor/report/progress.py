"""The time that an analysis has left, and its progress bar in a notebook."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

from placement_advisor.units import format_duration

if TYPE_CHECKING:
    from placement_advisor.analysis.progress import TimeAhead


class TimeLeft:
    """What was last expected to be ahead, and what is left of it."""

    def __init__(self) -> None:
        self._ahead: TimeAhead | None = None
        self._since = 0.0

    def expect(self, ahead: TimeAhead) -> None:
        """Begin to count it down."""
        self._ahead, self._since = ahead, time.monotonic()

    def text(self) -> str:
        """Return it in words, as an addition; nothing where nothing is expected."""
        if self._ahead is None:
            return ""
        left_s = self._ahead.left_s(time.monotonic() - self._since)
        text = f", about {format_duration(left_s)} left"
        if self._ahead.doubt_s:
            text += f", {format_duration(left_s + self._ahead.doubt_s)} if in doubt"
        if self._ahead.is_busy:
            text += ", longer while other work runs"
        return text

    @property
    def seconds(self) -> float | None:
        """What is left, None where nothing is expected."""
        if self._ahead is None:
            return None
        return self._ahead.left_s(time.monotonic() - self._since)


# A notebook draws each change anew; more of them nobody can read.
_LEAST_S = 0.2


def notebook_display() -> Any | None:
    """Return the function by which a notebook shows things, None outside of notebooks."""
    shell = sys.modules.get("IPython")
    # A terminal of IPython has no kernel, and shows no HTML.
    running = shell.get_ipython() if shell is not None else None
    if running is None or not hasattr(running, "kernel"):
        return None
    from importlib import import_module

    return import_module("IPython.display").display


class NotebookProgressBar:
    """A line with a bar; ``display`` is that of `IPython.display`."""

    def __init__(self, display: Any) -> None:
        """Show it."""
        self._left = TimeLeft()
        self._began = time.monotonic()
        self._share, self._shown_at = 0.0, 0.0
        self._line = _Line(0.0, "starting")
        self._handle = display(self._line, display_id=True)

    def working(self, what: str, done: int, total: int, candidate: str = "") -> None:
        """Show what goes on, and how far it is."""
        counted = f" {done + 1}/{total}" if total > 1 else ""
        self._show(what + counted + (f", {candidate}" if candidate else ""))

    def expect(self, ahead: TimeAhead) -> None:
        """Let the bar grow by what is ahead from now on."""
        self._left.expect(ahead)

    def note(self, what: str) -> None:
        """Print it below."""
        print(what)

    def end(self, what: str) -> None:
        """Show the end."""
        self._share = 1.0 if what == "done" else self._share
        self._handle.update(_Line(self._share, f"{what} after {self._spent_s():.0f} s"))

    def _spent_s(self) -> float:
        return time.monotonic() - self._began

    def _show(self, what: str) -> None:
        now = time.monotonic()
        if now - self._shown_at < _LEAST_S:
            return
        self._shown_at = now
        left_s, spent_s = self._left.seconds, self._spent_s()
        if left_s is not None and spent_s + left_s > 0:
            # What takes longer than was expected stands still.
            self._share = max(self._share, spent_s / (spent_s + left_s))
        self._handle.update(_Line(self._share, what + self._left.text()))


class _Line:
    """A bar and words, as HTML and as text."""

    def __init__(self, share: float, words: str) -> None:
        self._share, self._words = share, words

    def __repr__(self) -> str:
        return f"{self._share:4.0%} {self._words}"

    def _repr_html_(self) -> str:
        return (
            f'<progress max="1" value="{self._share:.3f}"></progress> '
            f"<span>{escape(self._words)}</span>"
        )
