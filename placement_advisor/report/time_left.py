"""How long an analysis still takes, counted down and in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
