"""All work, shared out over the devices as well as it could ever be.

Where devices are alike, that is the sum of all ops over their number. Where they are not, the best
weights of places are the dual of sharing ops out in any proportions; they are looked for by
multiplicative updates, and any weights make a true bound.

Source: Arora, Hazan and Kale, The multiplicative weights update method (2012),
https://doi.org/10.4086/toc.2012.v008a006.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.solvers.bounds.arguments import WorkArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.solvers.bounds.step_numbers import Step

# Any weights give a bound that holds; these say how near it comes to the best one, which a linear
# program has: within 1 % on uneven devices (`tests/solvers/bounds/test_work_weights.py`). More
# turns take longer for less than that. Weights are whole parts of a million, so that a checker adds
# up integers.
_PARTS = 10**6
_ROUNDS = 300
_RATE = 0.5


def shared_work(step: Step) -> WorkArgument:
    """Return the argument of the work, with the best weights that were found."""
    devices = step.cluster.device_names()
    places = (*devices, *(host.name for host in step.cluster.hosts))
    time_ns = np.array(
        [[row.get(place, np.inf) for row in step.time_ns] for place in places], float
    ).reshape(len(places), len(step.ops))
    number = np.arange(len(step.ops))
    unused_ns = np.array([idle_ns(step, place) for place in places], float)
    weights = np.array([1.0 if place in devices else 0.01 for place in places])
    even = [_PARTS if place in devices else 0 for place in places]
    best_ns, parts = 0.0, even
    for turn in range(_ROUNDS if len(step.ops) else 0):
        weights /= weights.sum()
        weighted_ns = weights[:, None] * time_ns
        where = np.argmin(weighted_ns, axis=0)
        value_ns = weighted_ns[where, number].sum() + weights @ unused_ns
        if value_ns > best_ns:
            best_ns, parts = value_ns, [round(w * _PARTS) for w in weights.tolist()]
        busy_ns = np.bincount(where, time_ns[where, number], len(places))
        rate = _RATE / (1 + turn) ** 0.5
        weights *= np.exp(rate * (busy_ns / max(1.0, float(busy_ns.max())) - 1))
    shared = [dict(zip(places, each, strict=True)) for each in (even, parts)]
    arguments = (WorkArgument(value_ns=work_value_ns(step, each), weights=each) for each in shared)
    return max(arguments, key=lambda argument: argument.value_ns)


def work_value_ns(step: Step, weights: Mapping[str, int]) -> int:
    """Return what these weights of places say that a step on several devices takes at least."""
    done = sum(min(weights[p] * time_ns for p, time_ns in row.items()) for row in step.time_ns)
    done += sum(weight * idle_ns(step, place) for place, weight in weights.items())
    return -(-done // sum(weights.values()))


def idle_ns(step: Step, place: str) -> int:
    """Return for how long no op of a place can run, even if none is placed there.

    A split takes at least the start and the end of a device that is not the first.
    """
    return min(step.further_ns(), step.begin_ns(place) + step.end_ns(place))
