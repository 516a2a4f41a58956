"""Keras' own training loop around the user's step, measured: what PA308 rests on.

Model: `fit` with one step for each call and with several, in turns, in the process that has loaded
the model, with all of the machine. Left out: the progress bar and callbacks of the user's own, for
which each call costs more; steps so slow that a call is next to nothing beside them.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.loop_timing import LoopTiming
from placement_advisor.tf.calls import fit_timer
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.processes.children import Child

# A call costs up to 2 ms on a slow machine (`steps_per_execution`, before 0.2): of a step
# of 40 ms that is a twentieth. Longer ones would lengthen the analysis for nothing.
_SLOWEST_STEP_S = 0.04
# As many as say whether all of them agree, in some seconds. Judgement.
_ROUNDS = 5
_TIME_LIMIT_S = 120.0


def loop_timing(loader: Child, as_is_ns: Sequence[int]) -> LoopTiming | None:
    """Return what a step takes in `fit` of the loaded model.

    ``as_is_ns`` are step times outside of it. None is returned where they are too slow, the step is
    not one of `fit`, or `fit` fails.
    """
    if not as_is_ns or median(as_is_ns) > _SLOWEST_STEP_S * NS_PER_S:
        return None
    answer = loader.call(fit_timer.time_fit, _ROUNDS, time_limit_s=_TIME_LIMIT_S)
    return answer if isinstance(answer, LoopTiming) else None
