"""How to carry out a placement, in the forms that a user can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.advice.listing import code_listing
from placement_advisor.advice.words import MOST_IN_ONE_LINE, placement_in_words
from placement_advisor.analysis import HowToSplit

if TYPE_CHECKING:
    from placement_advisor.graph import OpGraph
    from placement_advisor.placement import Placement


def how_to_split(graph: OpGraph, placement: Placement) -> HowToSplit:
    """Return how to carry out a placement of the graph."""
    words = placement_in_words(graph, placement)
    return HowToSplit(
        candidate=placement.label,
        words=words,
        words_in_short=placement_in_words(graph, placement, most=MOST_IN_ONE_LINE),
        listing=code_listing(graph, placement, f"{placement.label}: {words}."),
    )
