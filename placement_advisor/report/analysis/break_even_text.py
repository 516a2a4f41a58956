"""What would have to change for a split to win, in one line per axis. All of it is simulated.

Ratios are shown as speed-ups over the baseline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.reasons import speedup_of
from placement_advisor.simulator.break_even import FOR_FASTER_LINKS, Axis, BreakEvenOutcome
from placement_advisor.units import counted, format_bandwidth, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.simulator.break_even import BreakEven, Sweep

BREAK_EVEN_NOTE = (
    "One figure is changed at a time, and the best of the splits above that leave the batch whole "
    "is taken at each value; what copies take for their bytes, or whatever their size, on all "
    "links between devices alike. What grows with the batch, and how fast, is told from traces at "
    "several batches. Whether a batch fits into memory is not looked at."
)


def value_text(axis: Axis, value: int) -> str:
    """Return a value of an axis with its unit."""
    match axis:
        case Axis.BANDWIDTH:
            return format_bandwidth(value)
        case Axis.LATENCY:
            return format_ns(value)
        case Axis.BATCH:
            return counted(value, "sample")


def break_even_title(found: BreakEven) -> str:
    """Return what the lines are about."""
    basis = "simulated, corrected" if found.corrections else "simulated"
    return (
        f"Break-even ({basis}): a split that leaves the batch whole wins above "
        f"{speedup_of(found.worthwhile_ratio)} over {found.baseline}"
    )


def break_even_lines(found: BreakEven) -> Iterable[str]:
    """Yield a line for each axis, what copies that cost nothing would make of it, and its terms."""
    for sweep in found.sweeps():
        yield f"{sweep.axis}: {_finding(sweep)}; {_here(sweep)}{_exceptions(sweep)}"
    if found.no_batch is not None:
        yield f"{Axis.BATCH}: not swept, since {found.no_batch}"
    free = found.free_copies
    line = (
        f"if copies cost nothing, the best split ({free.split}) would be "
        f"{speedup_of(free.ratio)} as fast as {found.baseline}"
    )
    here = min((sweep.here.best.ratio for sweep in found.sweeps()), default=free.ratio)
    if speedup_of(free.ratio) != speedup_of(here) and free.ratio > here:
        line += (
            ", less than here: ops that are ready earlier run in another order, which can take "
            "longer"
        )
    yield line if free.ratio < found.worthwhile_ratio else f"{line}: no link makes one win"
    if found.corrections:
        named = dict.fromkeys(
            best.split for sweep in found.sweeps() for best in (sweep.here.best, free)
        )
        factors = ", ".join(f"{name} {found.corrections[name]:.2f}" for name in named)
        yield (
            "corrected: the simulated step of a split times its measured ratio over the predicted "
            f"one, of a split that did not run times the median of the others ({factors})"
        )
    if FOR_FASTER_LINKS in found.splits():
        yield (
            f"{FOR_FASTER_LINKS}: none of the candidates, but a split that a search finds where "
            "copies cost less than here, to see what faster links would do"
        )


def _finding(sweep: Sweep) -> str:
    """Return from or up to which value a split wins; the lower a latency, the better."""
    is_latency = sweep.axis is Axis.LATENCY
    least, most = (
        f"{value_text(sweep.axis, sweep.points[place].value)} (the {which} tried)"
        for place, which in ((0, "least"), (-1, "most"))
    )
    if sweep.outcome is BreakEvenOutcome.NOWHERE:
        return f"no split wins {f'down to {least}' if is_latency else f'up to {most}'}"
    if sweep.wins_from is None:
        return f"a split wins {f'up to {most}' if is_latency else f'from {least} on'}"
    limit, here = sweep.wins_from.value, sweep.here.value
    wins = "wins" if (here <= limit if is_latency else here >= limit) else "would win"
    shown = value_text(sweep.axis, limit)
    reach = f"up to {shown} per copy" if is_latency else f"from {shown} on"
    return f"a split ({sweep.wins_from.best.split}) {wins} {reach}"


def _here(sweep: Sweep) -> str:
    """Return today's value and ratio."""
    value = value_text(sweep.axis, sweep.here.value)
    where = f"here {value}" if sweep.axis is Axis.BATCH else f"the slowest link here has {value}"
    best = sweep.here.best
    return f"{where}, where the best ({best.split}) is at {speedup_of(best.ratio)}"


def _exceptions(sweep: Sweep) -> str:
    expected = 1 if sweep.outcome is BreakEvenOutcome.CROSSES else 0
    if sweep.changes <= expected:
        return ""
    times = "once" if sweep.changes == 1 else f"{sweep.changes} times"
    return f"; not without exception: along what was tried, winning and losing change {times}"
