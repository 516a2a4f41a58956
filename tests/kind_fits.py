"""How far predicted op costs are off the measured ones, kind by kind.

Model: a kind's ratio is its predicted time over its measured time, each summed over its ops, the
launch overhead added to every predicted op. Kinds are ordered by measured time. Ops that one of
the tables lacks are left out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFit:
    """Times of all ops of one kind. ``share`` is their part of all measured time."""

    kind: str
    ops: int
    measured_ns: int
    predicted_ns: int
    share: float

    @property
    def ratio(self):
        """Predicted over measured, None where nothing was measured."""
        return self.predicted_ns / self.measured_ns if self.measured_ns else None

    def is_within(self, factor):
        """Whether the prediction is neither ``factor`` times too long nor too short."""
        return self.ratio is not None and 1 / factor <= self.ratio <= factor


def fit_by_kind(graph, predicted, measured, launch_overhead_ns):
    """Return the fit of every kind, the one that takes longest first."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for op in graph.ops:
        if op.name not in predicted.costs or op.name not in measured.costs:
            continue
        total = totals[op.kind]
        total[0] += 1
        total[1] += measured.time_ns(op.name)
        total[2] += predicted.time_ns(op.name) + launch_overhead_ns
    whole = sum(measured_ns for _, measured_ns, _ in totals.values()) or 1
    fits = [
        KindFit(
            kind=kind,
            ops=ops,
            measured_ns=measured_ns,
            predicted_ns=predicted_ns,
            share=measured_ns / whole,
        )
        for kind, (ops, measured_ns, predicted_ns) in totals.items()
    ]
    return tuple(sorted(fits, key=lambda fit: (-fit.measured_ns, fit.kind)))


def leading(fits, share):
    """Return the first kinds that together make up at least ``share`` of the measured time."""
    found: list[KindFit] = []
    covered = 0.0
    for fit in fits:
        if covered >= share:
            break
        found.append(fit)
        covered += fit.share
    return tuple(found)
