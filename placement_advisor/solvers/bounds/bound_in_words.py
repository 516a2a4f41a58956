"""A lower bound in words."""

from __future__ import annotations

from placement_advisor.solvers.bounds.arguments import (
    Argument,
    CutArgument,
    PathArgument,
    WorkArgument,
)
from placement_advisor.units import format_ns


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
