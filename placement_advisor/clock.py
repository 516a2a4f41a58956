"""Wall time by stage. The one place beside progress and measurement that reads a clock."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Wall time by stage."""

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()
        self._spent: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block towards a stage."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            spent = time.perf_counter_ns() - start
            self._spent[name] = self._spent.get(name, 0) + spent

    def timings_ns(self) -> dict[str, int]:
        """Return the time of every stage so far, and the total."""
        return {**self._spent, "total": time.perf_counter_ns() - self._start}


class Countdown:
    """What is left of a time limit, from now on."""

    def __init__(self, limit_s: float | None) -> None:
        self._end = None if limit_s is None else time.perf_counter() + limit_s

    def left_s(self) -> float | None:
        """Return the seconds that are left, None if there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.perf_counter())
