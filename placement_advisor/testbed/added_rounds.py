"""How many rounds a trial has: as many as asked for, and more while its verdict is in doubt.

Then come a few for what is there to be understood.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.measurement.anytime_interval import least_samples
from placement_advisor.measurement.verdict import is_in_doubt

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.testbed.trial import Trial

# Half as many again as sufficed for intervals that were too narrow: what is in doubt then is nearer
# to the threshold than rounds can tell (`make campaign-verdict-errors`).
MAX_ROUNDS = 90
# Past this, rounds that nobody asked for by number stop once there are enough for an interval: a
# demo must not take an hour. By judgement.
TIMING_BUDGET_S = 90.0
# As few as tell how one candidate compares. Nothing is concluded from them but that.
BRIEF_ROUNDS = least_samples()


def time_in_rounds(trial: Trial, asked: int | None, as_is: Callable[[int], None]) -> None:
    """Time all candidates of a trial in rounds, adding rounds while its verdict is in doubt.

    As many as were ``asked`` for run, however long they take; None for as many as usual, if there
    is time; none after the end of the trial. They come on top of rounds that the trial has already.
    ``as_is`` is called once a round, to time the user's own step beside the candidates.
    """
    deadline = time.monotonic() + TIMING_BUDGET_S
    first, rounds = trial.rounds, asked or defaults.ROUNDS
    most, least = max(rounds, MAX_ROUNDS), max(asked or 0, least_samples(trial.competitors))
    done = 0
    while done < rounds or (done < most and _may_settle(trial)):
        trial.round(first + done, first + (rounds if done < rounds else most))
        if trial.ended is not None:
            return
        as_is(first + done)
        done += 1
        is_late = time.monotonic() > deadline and done >= (asked or 0)
        if is_late and trial.fewest_rounds >= least:
            return


def time_briefly(trial: Trial, as_is: Callable[[int], None]) -> None:
    """Time what runs briefly against the baseline; ``as_is`` is called as in `time_in_rounds`."""
    first = trial.rounds
    for number in range(first, first + BRIEF_ROUNDS):
        trial.round(number, first + BRIEF_ROUNDS, is_brief=True)
        if trial.ended is not None:
            return
        as_is(number)


def may_join(trial: Trial, asked: int | None, done: int, spent_s: float) -> bool:
    """Say whether there is time for an interval of a candidate that joins now.

    ``done`` rounds have taken ``spent_s``. Who ``asked`` for rounds by number gets as many, and
    whoever joins is timed in what is left of them.
    """
    needed = done + least_samples(trial.competitors)
    return asked is not None or spent_s / done * needed <= TIMING_BUDGET_S


def _may_settle(trial: Trial) -> bool:
    """Say whether more rounds could settle the verdict, on candidates that are not out."""
    running = [entry.placement.label for entry in trial.running() if not entry.is_brief]
    if defaults.BASELINE not in running or running == [defaults.BASELINE]:
        return False
    compared = trial.comparisons()
    told = [compared[label] for label in running if label in compared]
    return len(told) < len(running) - 1 or is_in_doubt(told)
