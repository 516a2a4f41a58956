"""What would settle a verdict, and how long it takes."""

from __future__ import annotations

import pytest

from placement_advisor import defaults
from placement_advisor.analysis.analysis_result import NextRun
from placement_advisor.analysis.verdict import (
    MoreRounds,
    NextExperiment,
    RealRun,
    RerunEstimate,
    RunElsewhere,
    WithoutPython,
    next_experiment_text,
    next_run,
)

# 40 s beside rounds of 2 s.
RAN = RerunEstimate(fixed_s=40.0, round_s=2.0)
NOT_RUN = RerunEstimate(fixed_s=40.0, round_s=2.0, left_out="--quick")
ELSEWHERE = RerunEstimate(fixed_s=30.0, round_s=None, left_out="--quick")
S = 1_000_000_000


@pytest.mark.parametrize(
    ("settling", "again", "words"),
    [
        # 40 + 130 * 2 s
        (
            MoreRounds(count=130),
            RAN,
            "; more rounds (--resume --rounds 130, about 5 min) or a quieter machine would settle "
            "it",
        ),
        (
            MoreRounds(count=130),
            None,
            "; more rounds (--resume --rounds 130) or a quieter machine would settle it",
        ),
        (
            MoreRounds(count=None),
            RAN,
            "; the ratio is too near 0.97 for more rounds to help: only a quieter machine would "
            "settle it",
        ),
        # 40 + 15 * 2 s
        (RealRun(), NOT_RUN, "; a real run (without --quick, about 70 s) would settle it"),
        (RealRun(), None, "; a real run would settle it"),
        # The same command without --quick would tell more, and run nothing either.
        (WithoutPython(), NOT_RUN, "; a step without Python could run, which would settle it"),
        # What is not here cannot run, but be looked at for longer.
        (
            RunElsewhere(is_recorded=False),
            ELSEWHERE,
            "; a run on such devices would settle it, a profile recorded there (--costs) may",
        ),
        (RunElsewhere(is_recorded=True), None, "; a run on such devices would settle it"),
        (None, RAN, ""),
    ],
)
def test_what_settles_it_is_said_with_how_long_it_takes(
    settling: NextExperiment | None, again: RerunEstimate | None, words: str
) -> None:
    assert next_experiment_text(settling, again) == words


@pytest.mark.parametrize(
    ("settling", "again", "run"),
    [
        (
            MoreRounds(count=130),
            RAN,
            NextRun(change="with --resume --rounds 130", takes_ns=300 * S),
        ),
        (RealRun(), NOT_RUN, NextRun(change="without --quick", takes_ns=70 * S)),
        # A verdict that is simulated is worth a run though nothing is in doubt.
        (None, NOT_RUN, NextRun(change="without --quick", takes_ns=70 * S)),
        (
            RunElsewhere(is_recorded=False),
            ELSEWHERE,
            NextRun(change="without --quick", takes_ns=30 * S),
        ),
        (MoreRounds(count=None), RAN, None),
        (None, RAN, None),
        (MoreRounds(count=130), None, None),
    ],
)
def test_the_next_run_is_one_that_would_tell_more(
    settling: NextExperiment | None, again: RerunEstimate | None, run: NextRun | None
) -> None:
    assert defaults.ROUNDS == 15
    assert next_run(settling, again) == run
