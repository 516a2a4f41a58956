"""All rules of findings: their findings in the order of what they save, and their pages.

Findings about one split are combined and keep their order (`combined`). The page of a finding is
a file in `pages/`, which the documentation links to.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import EXTRAPOLATED
from placement_advisor.analysis.findings import scope_rules, split_rules, step_rules
from placement_advisor.analysis.findings.evidence import (
    Rule,
    SplitFinding,
    combined,
    split_placements_to_time,
)
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import Finding
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.placement import Placement


RULES: tuple[Rule, ...] = (
    scope_rules.BACKWARD_ON_DEFAULT_DEVICE,
    scope_rules.NO_GPU_KERNEL,
    scope_rules.VARIABLE_READ_ACROSS,
    scope_rules.MOVED_BY_TENSORFLOW,
    scope_rules.SCOPE_WITHOUT_EFFECT,
    split_rules.STEP_WAITS_FOR_TRANSFERS,
    split_rules.UNEVEN_LOAD,
    split_rules.IDLE_DEVICE,
    step_rules.DEVICE_WAITS_FOR_HOST,
    step_rules.BATCH_TOO_SMALL,
    step_rules.INPUT_WITHOUT_OVERLAP,
    step_rules.REPLICAS_DIFFER,
    step_rules.PLAIN_FLOAT32,
    step_rules.UNFUSED_ELEMENTWISE,
    step_rules.TABLE_UPDATED_WHOLE,
    step_rules.ONE_STEP_PER_CALL,
    split_rules.DOES_NOT_FIT,
    split_rules.MEMORY_ON_FIRST_DEVICE,
)


def find_all(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings of all rules: what does not fit first, then those that save most.

    Of findings about one split each saves what it brings beyond those before it. Findings whose
    saving is unknown come behind, and behind them those whose saving is extrapolated: it may be
    none. Last come those about splits that nobody has or is told to make, without a saving: nobody
    has what it would save.
    """
    ranked: list[tuple[tuple[bool, bool, bool, float], Finding]] = []
    for group in combine_findings(
        evidence, [each for rule in RULES for each in rule.find(evidence)]
    ):
        least_ns = math.inf  # What builds on another finding comes behind it.
        for finding in group:
            shown = replace(finding, saving=None) if finding.is_hypothetical else finding
            least_ns = min(least_ns, shown.saving.saving_ns if shown.saving else 0)
            fits = shown.code != split_rules.DOES_NOT_FIT_CODE
            is_far = shown.saving is not None and shown.saving.basis == EXTRAPOLATED
            ranked.append(((shown.is_hypothetical, fits, is_far, -least_ns), shown))
    ranked.sort(key=lambda each: each[0])
    return tuple(finding for _, finding in ranked)


def combine_findings(
    evidence: Evidence, found: Sequence[Finding | SplitFinding]
) -> list[tuple[Finding, ...]]:
    """Return the findings: each alone, or with the others about its split, in their order."""
    return [
        *((each,) for each in found if not isinstance(each, SplitFinding)),
        *(combined(evidence, group) for group in _by_split(found)),
    ]


def placements_to_time(evidence: Evidence) -> list[Placement]:
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
        for placement in split_placements_to_time(evidence, group)
    ]


def _by_split(found: Sequence[Finding | SplitFinding]) -> list[list[SplitFinding]]:
    about: dict[str, list[SplitFinding]] = {}
    for each in found:
        if isinstance(each, SplitFinding):
            about.setdefault(each.split.name, []).append(each)
    return [*about.values()]


_LINK = re.compile(r"\[(PA\d+)\]\(PA\d+\.md\)")


def finding_page(code: str) -> str:
    """Return the page of a finding as Markdown, other findings in it by their codes, not as links.

    The case of the code does not matter.

    Raises:
        AdvisorError: no such code.
    """
    known = [rule.code for rule in RULES]
    if code.upper() not in known:
        raise AdvisorError(
            f"no finding is called {code!r}; there are {', '.join(known)}",
            hint="`advisor explain` lists them with their names",
        )
    folder = resources.files("placement_advisor.analysis.findings") / "pages"
    return _LINK.sub(r"\1", (folder / f"{code.upper()}.md").read_text(encoding="utf-8"))
