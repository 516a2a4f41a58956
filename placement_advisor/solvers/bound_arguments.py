"""Arguments for a lower bound on the step time, and their words.

Each argument can be checked without a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class PathArgument:
    """Each of these ops needs the one before it, so their times add up wherever they run."""

    value_ns: int
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkArgument:
    """All work has to be done somewhere.

    ``weights`` of places, whole numbers: if each place counts as its weight, every op adds at least
    the least that its time weighs anywhere, and together they cannot weigh more than the step time
    times all weights.
    """

    value_ns: int
    weights: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutArgument:
    """The device that holds ``root`` is busy at least this long, whatever else it holds.

    Every op that is not there saves its time, but what then crosses keeps that device busy with
    sending and receiving. ``flow`` shows that no choice saves more than it costs: amounts in ns by
    (from, to), which go from the root to the ops over the tensors between them, and out at the
    ops. A tensor lets through no more than the work of sending (or receiving) it, an op no more
    than its time; so all that flows has to be spent by whatever stays with the root.

    Source: Ford and Fulkerson, Maximal flow through a network (1956),
    https://doi.org/10.4153/CJM-1956-045-5.
    """

    value_ns: int
    root: str
    flow: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllArgument:
    """Every placement on several devices or hosts was simulated; ``placements`` says how many."""

    value_ns: int
    placements: int


Argument: TypeAlias = PathArgument | WorkArgument | CutArgument | AllArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """What a step takes at least, in ns: split, and on each device or host alone.

    ``arguments`` are for the split, the strongest first.
    """

    split_ns: int
    alone_ns: Mapping[str, int]
    arguments: tuple[Argument, ...]

    @property
    def step_ns(self) -> int:
        """What any placement takes at least."""
        return min(self.split_ns, *self.alone_ns.values())


def argument_text(argument: Argument) -> str:
    """Return why a split takes at least that long, as half a sentence."""
    at_least = format_ns(argument.value_ns)
    if isinstance(argument, PathArgument):
        return f"critical path: {len(argument.ops):,} ops need one another in turn, {at_least}"
    if isinstance(argument, WorkArgument):
        return f"work: all ops, shared out evenly, keep the devices busy for {at_least}"
    if isinstance(argument, CutArgument):
        return (
            f"copies: the device that holds {argument.root} is busy for {at_least}; an op that "
            "leaves it costs it more in copies than it saves"
        )
    return f"all {argument.placements:,} placements were simulated, the fastest takes {at_least}"
