"""How far off speed-ups are that are simulated by assumed costs, on stand-ins.

Medians over models drawn at random, of how far simulated ratios to ``single`` were from measured
ones.
Source: docs/cost-model.md, *Models drawn at random*, which names the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

MODELS = 24
MEDIAN = 0.211
# By candidate, of those that at least five of these models have.
MEDIAN_OF = {
    "towers": 0.184,
    "towers-forward-only": 0.298,
    "pipeline": 0.102,
    "parameters-on-host": 0.132,
    "alternating": 0.282,
    "alternating-ops": 0.361,
    "searched": 0.125,
}


def expected_error(candidates: Iterable[str]) -> str:
    """Return a sentence on the errors to expect, with those of the candidates that are known."""
    each = [f"{name} {format_share(MEDIAN_OF[name])}" for name in candidates if name in MEDIAN_OF]
    return (
        f"Expect errors: on {MODELS} models drawn at random, speed-ups simulated so were off by "
        f"{', '.join([f'{format_share(MEDIAN)} (median)', *each])}."
    )
