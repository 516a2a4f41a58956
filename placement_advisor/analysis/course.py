"""An analysis on its way: each stage is timed, and whoever watches is told how much is ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from placement_advisor.analysis.durations import (
    Ahead,
    Stage,
    again,
    ahead,
    known_at_first,
    no_rounds_ahead,
    rounds_ahead,
)
from placement_advisor.clock import Clock
from placement_advisor.testbed.benchmark import ProgressReporter, SilentProgress
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.analysis.advice.settling import Again
    from placement_advisor.analysis.durations import Known
    from placement_advisor.analysis.options import AnalyzeOptions


class Onlooker(ProgressReporter, Protocol):
    """Is told what goes on, and how long it will take."""

    def expect(self, ahead: Ahead) -> None:
        """Say what is ahead from this moment on."""


class SilentOnlooker(SilentProgress):
    """An onlooker that says nothing."""

    def expect(self, ahead: Ahead) -> None:
        """Say nothing."""


class Course:
    """The stages of one analysis, one after the other, from the first on.

    ``known`` is what is known by now. Whoever learns more puts it there before the next stage.
    """

    def __init__(self, watcher: Onlooker, options: AnalyzeOptions) -> None:
        """Begin."""
        self.watcher, self.known = watcher, known_at_first(options)
        self._clock = Clock(Stage.IMPORT)
        self._round_s: float | None = None

    def begin(self, stage: Stage) -> None:
        """End the stage that is under way and begin another."""
        self._clock.begin(stage)
        self.watcher.expect(ahead(self.known, stage))

    def end_round(self, done: int) -> None:
        """Expect of the rounds to come what those that are done have taken."""
        spent_s = self.timings_ns()[Stage.RUN] / NS_PER_S
        self._round_s = spent_s / done
        self.watcher.expect(rounds_ahead(self.known, done, spent_s))

    def end_rounds(self) -> None:
        """Expect no more rounds."""
        self.watcher.expect(no_rounds_ahead(self.known))

    def again(self, known: Known, left_out: str | None) -> Again:
        """Return what an analysis would take of which so much is known; see `durations.again`."""
        return again(known, self.timings_ns(), self._round_s, left_out)

    def timings_ns(self) -> dict[str, int]:
        """Return what each stage has taken by now."""
        return self._clock.timings_ns()
