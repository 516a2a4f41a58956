"""All rules, and their findings in the order of what they save."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

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
    step_waits_for_transfers,
    table_updated_whole,
    uneven_load,
    unfused_elementwise,
    variable_read_across,
)

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Finding
    from placement_advisor.analysis.findings.evidence import Evidence


class Rule(Protocol):
    """A module with one rule."""

    CODE: str
    NAME: str

    def find(self, evidence: Evidence) -> tuple[Finding, ...]:
        """Return what the rule has found, nothing if all is well."""


RULES: tuple[Rule, ...] = (
    backward_on_default_device,
    no_gpu_kernel,
    variable_read_across,
    moved_by_tensorflow,
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

    Findings whose saving is unknown come behind, in the order of their codes. Last come those about
    splits that nobody has or is told to make, without a saving: nobody has what it would save.
    """
    found = [finding for rule in RULES for finding in rule.find(evidence)]
    shown = [replace(f, saving_ns=None) if f.is_hypothetical else f for f in found]
    return tuple(sorted(shown, key=_order))


def _order(finding: Finding) -> tuple[bool, bool, float, str]:
    saving_ns = finding.saving_ns
    return (
        finding.is_hypothetical,
        finding.code != does_not_fit.CODE,
        -saving_ns if saving_ns else 0,
        finding.code,
    )
