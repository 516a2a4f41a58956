"""How far off what is simulated by assumed costs may be: on stand-ins, and on named GPUs.

Stand-ins: medians over models drawn at random, of how far simulated ratios to ``single`` were from
measured ones.
Source: docs/cost-model.md, *Models drawn at random*, which names the command.

GPUs: mean errors of kernels stand beside their constants (`cost/gpu/kernel_times.toml`), those of
published training steps in the contract.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.results.analysis import PUBLISHED_STEPS, GpuTimes
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.analysis.analysis_result import Analysis

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

# What users call the families of kernels.
FAMILY_WORDS = {
    "linear": "products of matrices",
    "bmm": "batched products",
    "conv": "convolutions",
    **dict.fromkeys(("add", "mul", "relu", "tanh", "gelu"), "elementwise"),
    "softmax": "softmax",
    "ln": "layer normalisation",
}
_BASIS_WORDS = {
    "fitted": "measured on this chip",
    "transferred": "measured on other chips",
}


# Nothing is predicted as well as that.
_LEAST_ERROR = 0.01


def error_text(error: float) -> str:
    """Return a mean error as a percentage, which is never 0."""
    return "under 1 %" if error < _LEAST_ERROR else format_share(error)


def expected_error(
    candidates: Iterable[str], times: Iterable[GpuTimes], *, stand_in: bool
) -> str | None:
    """Return what errors to expect where nothing ran, None if none are known.

    ``times`` is what those of ops rest on, on GPUs that are not here.
    """
    return _on_stand_ins(candidates) if stand_in else _on_gpus(times)


def analysis_error(analysis: Analysis) -> str | None:
    """Return what errors to expect of an analysis; None where steps ran, or none are known."""
    testbed = analysis.testbed
    if testbed is None or testbed.not_run is None:
        return None
    predicted = (c.name for c in analysis.candidates if c.predicted is not None)
    return expected_error(
        predicted, map(GpuTimes.of, analysis.assumed_times), stand_in=testbed.stand_in
    )


def _on_stand_ins(candidates: Iterable[str]) -> str:
    """Return a sentence on the errors to expect, with those of the candidates that are known."""
    each = [f"{name} {format_share(MEDIAN_OF[name])}" for name in candidates if name in MEDIAN_OF]
    return (
        f"Expect errors: on {MODELS} models drawn at random, speed-ups simulated so were off by "
        f"{', '.join([f'{format_share(MEDIAN)} (median)', *each])}."
    )


def _on_gpus(times: Iterable[GpuTimes]) -> str | None:
    sentences = list(map(_of_times, times))
    if not sentences:
        return None
    known = PUBLISHED_STEPS
    return " ".join(
        [
            f"Expect errors: {known.count} published training steps on one GPU were predicted "
            f"{format_share(known.mean_error)} off in the mean, "
            f"{format_share(known.worst_error)} at worst.",
            *sentences,
        ]
    )


def _of_times(times: GpuTimes) -> str:
    parts = [
        f"{format_share(times.launch_share)} is that of launches",
        f"{format_share(times.assumed_share)} rests on kernels without a record",
        f"{format_share(times.roofline_share)} on peaks alone",
    ]
    by_basis: defaultdict[str, float] = defaultdict(float)
    for each in times.families:
        by_basis[each.basis] += each.share
    parts += [
        f"{format_share(share)} on kernels {_BASIS_WORDS[basis]} (off in the mean: "
        f"{_errors(times, basis)})"
        for basis, share in by_basis.items()
    ]
    return f"Of the time of ops on {times.gpu}, {', '.join(parts)}."


def _errors(times: GpuTimes, basis: str) -> str:
    """Return the mean error of each family, that which takes most time first."""
    by_word: dict[str, list[tuple[float, float]]] = {}
    for each in times.families:
        if each.basis == basis:
            by_word.setdefault(FAMILY_WORDS[each.family], []).append((each.share, each.mean_error))
    found = []
    for word, rows in by_word.items():
        error = sum(share * each for share, each in rows) / sum(share for share, _ in rows)
        found.append(f"{word} {error_text(error)}")
    return ", ".join(found)
