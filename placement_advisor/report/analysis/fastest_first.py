"""Which candidates the pictures of an analysis show, and in which order."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.defaults import AS_WRITTEN, BASELINE

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis, Candidate

# The single device and three others: more cannot be compared at a glance.
_SIDE_BY_SIDE = 4


_BEFORE_OTHERS = {BASELINE: 0, AS_WRITTEN: 1}


def did_run(candidate: Candidate) -> bool:
    """Whether its steps were timed to the end."""
    run = candidate.measured
    return candidate.failure is None and run is not None and bool(run.step_ns)


def any_ran(analysis: Analysis) -> bool:
    """Whether any candidate did, on the testbed."""
    return analysis.testbed.not_run is None and any(map(did_run, analysis.candidates))


def fastest_first(analysis: Analysis) -> tuple[Candidate, ...]:
    """Return the candidates that ran, or all that were predicted if none did.

    The single device comes first, then the user's own split, then the fastest first.
    """
    if any_ran(analysis):
        chosen = filter(did_run, analysis.candidates)
        return tuple(sorted(chosen, key=lambda c: (_place(c), *_measured_order(c))))
    foreseen = [(c, c.predicted.step_ns) for c in analysis.candidates if c.predicted is not None]
    foreseen.sort(key=lambda entry: (_place(entry[0]), entry[1]))
    return tuple(candidate for candidate, _ in foreseen)


def in_timeline(analysis: Analysis) -> tuple[Candidate, ...]:
    """Return those that ``timeline.png`` shows."""
    return fastest_first(analysis)[:_SIDE_BY_SIDE]


def in_own_timelines(analysis: Analysis) -> tuple[Candidate, ...]:
    """Return those with a picture each in ``timelines/``: all others that were predicted."""
    names = {candidate.name for candidate in in_timeline(analysis)}
    return tuple(c for c in analysis.candidates if c.predicted is not None and c.name not in names)


def _place(candidate: Candidate) -> int:
    return _BEFORE_OTHERS.get(candidate.name, len(_BEFORE_OTHERS))


def _measured_order(candidate: Candidate) -> tuple[bool, float]:
    """Sort by what verdicts go by, the ratio within rounds; behind these by the step alone."""
    if candidate.comparison is not None:
        return False, candidate.comparison.ratio.median
    return True, median(candidate.measured.step_ns) if candidate.measured else 0
