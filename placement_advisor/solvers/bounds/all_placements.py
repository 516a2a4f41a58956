"""All placements of a step so small that each of them can be simulated."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.solvers.bounds.arguments import AllArgument

if TYPE_CHECKING:
    from placement_advisor.simulator.simulator import Simulator
    from placement_advisor.solvers.bounds.step_numbers import Step

# A simulation of a step so small takes 50 µs.
MAX_PLACEMENTS = 2**15


def every_placement(step: Step, simulator: Simulator) -> AllArgument | None:
    """Return the fastest of all steps on several devices; None if there are too many, or none."""
    places, groups = len(step.cluster.place_names()), len(step.groups)
    if groups * np.log2(places) > np.log2(MAX_PLACEMENTS):
        return None
    group_of = np.array(step.group_of, np.int64)
    steps_ns = [
        simulator.step_ns_at(np.array(chosen, np.int64)[group_of])
        for chosen in product(range(places), repeat=groups)
        if len(set(chosen)) > 1
    ]
    if not steps_ns:
        return None
    return AllArgument(value_ns=min(steps_ns) - step.overhead_ns, placements=len(steps_ns))
