"""All rules, and their findings in the order of what they save.

What rules find in one split is made to go together (`moves`), and keeps its order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from placement_advisor.analysis.analysis_result import EXTRAPOLATED
from placement_advisor.analysis.findings import (
    backward_on_default_device,
    batch_too_small,
    device_waits_for_host,
    does_not_fit,
    idle_device,
    input_without_overlap,
    memory_on_first_device,
    moved_by_tensorflow,
    no_gpu_kernel,
    one_step_per_call,
    plain_float32,
    replicas_differ,
    scope_without_effect,
    step_waits_for_transfers,
    table_updated_whole,
    uneven_load,
    unfused_elementwise,
    variable_read_across,
)
from placement_advisor.analysis.findings.moves import InSplit, to_be_timed, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import Finding
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.placement import Placement


class Rule(Protocol):
    """A module with one rule."""

    CODE: str
    NAME: str

    def find(self, evidence: Evidence) -> tuple[Finding | InSplit, ...]:
        """Return what the rule has found, nothing if all is well."""


RULES: tuple[Rule, ...] = (
    backward_on_default_device,
    no_gpu_kernel,
    variable_read_across,
    moved_by_tensorflow,
    scope_without_effect,
    step_waits_for_transfers,
    uneven_load,
    idle_device,
    device_waits_for_host,
    batch_too_small,
    input_without_overlap,
    replicas_differ,
    plain_float32,
    unfused_elementwise,
    table_updated_whole,
    one_step_per_call,
    does_not_fit,
    memory_on_first_device,
)


def find_all(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings of all rules: what does not fit first, then those that save most.

    Of findings about one split each saves what it brings beyond those before it. Findings whose
    saving is unknown come behind, and behind them those whose saving is extrapolated: it may be
    none. Last come those about splits that nobody has or is told to make, without a saving: nobody
    has what it would save.
    """
    ranked: list[tuple[tuple[bool, bool, bool, float], Finding]] = []
    for group in settled(evidence, [each for rule in RULES for each in rule.find(evidence)]):
        least_ns = math.inf  # What builds on another finding comes behind it.
        for finding in group:
            shown = replace(finding, saving=None) if finding.is_hypothetical else finding
            least_ns = min(least_ns, shown.saving.saving_ns if shown.saving else 0)
            fits = shown.code != does_not_fit.CODE
            is_far = shown.saving is not None and shown.saving.basis == EXTRAPOLATED
            ranked.append(((shown.is_hypothetical, fits, is_far, -least_ns), shown))
    ranked.sort(key=lambda each: each[0])
    return tuple(finding for _, finding in ranked)


def settled(evidence: Evidence, found: Sequence[Finding | InSplit]) -> list[tuple[Finding, ...]]:
    """Return the findings: each alone, or with the others about its split, in their order."""
    return [
        *((each,) for each in found if not isinstance(each, InSplit)),
        *(together(evidence, group) for group in _by_split(found)),
    ]


def what_to_time(evidence: Evidence) -> list[Placement]:
    """Return the splits to run, as they are and with what would be moved in them.

    Of a split that nobody has or is told to make nothing is shown that it would save.
    """
    if all(split.is_hypothetical for split in evidence.splits):
        return []
    groups = _by_split([each for rule in RULES for each in rule.find(evidence)])
    return [
        placement
        for group in groups
        if not group[0].split.is_hypothetical
        for placement in to_be_timed(evidence, group)
    ]


def _by_split(found: Sequence[Finding | InSplit]) -> list[list[InSplit]]:
    about: dict[str, list[InSplit]] = {}
    for each in found:
        if isinstance(each, InSplit):
            about.setdefault(each.split.name, []).append(each)
    return [*about.values()]
