"""All rules of findings: their findings in the order of what they save, and their pages.

Findings about one split are combined and keep their order (`combined`). The page of a finding is
a file in `pages/`, which the documentation links to.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis import analysis_result
from placement_advisor.analysis.findings import scope_rules, split_rules, step_rules
from placement_advisor.analysis.findings.evidence import (
    SplitFinding,
    combined,
    split_placements_to_time,
)
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.placement import Placement


class Rule(NamedTuple):
    """The code and the name of a finding, and the function that finds it."""

    code: str
    name: str
    find: Callable[[Evidence], Iterator[analysis_result.Finding | SplitFinding]]

    def found(self, evidence: Evidence) -> Iterator[analysis_result.Finding | SplitFinding]:
        """Yield what the function finds, with the code and the name of the rule."""
        for finding in self.find(evidence):
            yield replace(finding, code=self.code, name=self.name)


RULES = (
    Rule("PA101", "backward-on-default-device", scope_rules.find_backward_on_default_device),
    Rule("PA102", "no-gpu-kernel", scope_rules.find_no_gpu_kernel),
    Rule("PA103", "variable-read-across-devices", scope_rules.find_variable_read_across),
    Rule("PA104", "moved-by-tensorflow", scope_rules.find_moved_by_tensorflow),
    Rule("PA105", "scope-without-effect", scope_rules.find_scope_without_effect),
    Rule("PA201", "step-waits-for-transfers", split_rules.find_step_waits_for_transfers),
    Rule("PA202", "uneven-load", split_rules.find_uneven_load),
    Rule("PA203", "idle-device", split_rules.find_idle_device),
    Rule("PA301", "device-waits-for-host", step_rules.find_device_waits_for_host),
    Rule("PA302", "batch-too-small", step_rules.find_batch_too_small),
    Rule("PA303", "input-without-overlap", step_rules.find_input_without_overlap),
    Rule("PA304", "replicas-differ", step_rules.find_replicas_differ),
    Rule("PA305", "plain-float32", step_rules.find_plain_float32),
    Rule("PA306", "unfused-elementwise", step_rules.find_unfused_elementwise),
    Rule("PA307", "table-updated-whole", step_rules.find_table_updated_whole),
    Rule("PA308", "one-step-per-call", step_rules.find_one_step_per_call),
    Rule("PA401", "does-not-fit", split_rules.find_does_not_fit),
    Rule("PA402", "memory-on-first-device", split_rules.find_memory_on_first_device),
)
# What does not fit comes before all that makes a step faster.
_FIRST_CODE = "PA401"


def find_all(evidence: Evidence) -> tuple[analysis_result.Finding, ...]:
    """Return the findings of all rules: what does not fit first, then those that save most.

    Of findings about one split each saves what it brings beyond those before it. Findings whose
    saving is unknown come behind, and behind them those whose saving is extrapolated: it may be
    none. Last come those about splits that nobody has or is told to make, without a saving: nobody
    has what it would save.
    """
    ranked: list[tuple[tuple[bool, bool, bool, float], analysis_result.Finding]] = []
    for group in combine_findings(evidence, _all_found(evidence)):
        least_ns = math.inf  # What builds on another finding comes behind it.
        for finding in group:
            shown = replace(finding, saving=None) if finding.is_hypothetical else finding
            least_ns = min(least_ns, shown.saving.saving_ns if shown.saving else 0)
            fits = shown.code != _FIRST_CODE
            is_far = shown.saving is not None and shown.saving.basis == analysis_result.EXTRAPOLATED
            ranked.append(((shown.is_hypothetical, fits, is_far, -least_ns), shown))
    ranked.sort(key=lambda each: each[0])
    return tuple(finding for _, finding in ranked)


def combine_findings(
    evidence: Evidence, found: Sequence[analysis_result.Finding | SplitFinding]
) -> list[tuple[analysis_result.Finding, ...]]:
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
    return [
        placement
        for group in _by_split(_all_found(evidence))
        if not group[0].split.is_hypothetical
        for placement in split_placements_to_time(evidence, group)
    ]


def _all_found(evidence: Evidence) -> list[analysis_result.Finding | SplitFinding]:
    return [each for rule in RULES for each in rule.found(evidence)]


def _by_split(found: Sequence[analysis_result.Finding | SplitFinding]) -> list[list[SplitFinding]]:
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
