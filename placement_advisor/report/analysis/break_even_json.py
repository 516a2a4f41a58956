"""A break-even as part of ``analysis.json``: the unit of each value is in its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.simulator.break_even import Axis

if TYPE_CHECKING:
    from placement_advisor.simulator.break_even import BestSplit, BreakEven, Sweep, Swept

_UNITS = {Axis.BANDWIDTH: "bytes_per_s", Axis.LATENCY: "ns", Axis.BATCH: "samples"}


def break_even_as_json(found: BreakEven) -> dict[str, Any]:
    """Return the object that the public contract has."""
    return {
        "baseline": found.baseline,
        "worthwhile_ratio": found.worthwhile_ratio,
        "corrections": dict(found.corrections),
        "free_copies": _best(found.free_copies),
        "bandwidth": _sweep(found.bandwidth),
        "latency": _sweep(found.latency),
        "batch": _sweep(found.batch),
    }


def _best(best: BestSplit) -> dict[str, Any]:
    return {"candidate": best.split, "ratio": best.ratio}


def _sweep(sweep: Sweep | None) -> dict[str, Any] | None:
    if sweep is None:
        return None
    unit = _UNITS[sweep.axis]
    return {
        "outcome": sweep.outcome.value,
        f"here_{unit}": sweep.here.value,
        f"wins_from_{unit}": _value(sweep.wins_from),
        f"loses_at_{unit}": _value(sweep.loses_at),
        "changes": sweep.changes,
        "points": [{unit: point.value, **_best(point.best)} for point in sweep.points],
    }


def _value(point: Swept | None) -> int | None:
    return None if point is None else point.value
