"""The figures of one step that the Placement tab shows, predicted and measured alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.report.analysis.figures import timed_ns

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """One step in numbers; what is not known is None."""

    step_ns: int
    transfer_count: int | None
    transfer_bytes: int | None
    exposed_ns: int | None
    bytes_are_a_floor: bool


def candidate_figures(candidate: Candidate) -> tuple[StepFigures | None, StepFigures | None]:
    """Return what was predicted and what was measured."""
    predicted, timed = candidate.predicted, timed_ns(candidate)
    return (
        None if predicted is None else _figures(predicted.step_ns, predicted),
        None if timed is None else _figures(timed, candidate.profile),
    )


def _figures(step_ns: int, step: Schedule | StepProfile | None) -> StepFigures:
    return StepFigures(
        step_ns=step_ns,
        transfer_count=step.transfer_count if step else None,
        transfer_bytes=step.transfer_bytes if step else None,
        exposed_ns=step.exposed_ns if step else None,
        bytes_are_a_floor=step.bytes_are_a_floor if step else False,
    )
