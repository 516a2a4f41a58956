"""What an analysis records while it goes on: progress for reports, and rounds for `--resume`.

Added rounds must repeat the same experiment. So costs stay as they were measured, and with them
the placements, the predictions and the set of candidates. A resume is refused if options,
machine, versions or graph differ. Only the version that wrote the file reads it; it is not
trusted all the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar, Protocol

from placement_advisor import __version__
from placement_advisor.analysis.options import OPEN_PORTS, AnalyzeOptions
from placement_advisor.analysis.runs import ReferenceTimings
from placement_advisor.analysis.step_costs import MeasuredCosts
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import STRICT, ByName, Count, Text, plain, read
from placement_advisor.files.untrusted import MisfitError, shown
from placement_advisor.graph.placement import Placement, read_placement
from placement_advisor.machine.calibration import calibration_fingerprint
from placement_advisor.simulator.sensitivity import PredictedRatio
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.testbed.benchmark import EarlierRounds

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis import analysis_result
    from placement_advisor.analysis.tracing import AnalysisRequest
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.testbed.testbed import ProfileFiles


ROUNDS_FILE = "rounds.json"
# What may be asked otherwise: more rounds are still more of the same.
_MAY_DIFFER = ("--rounds", "--time-limit", OPEN_PORTS)
_NOT_GIVEN = "not given"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeState:
    """What rounds have shown by now, in how many ``sessions``.

    ``conditions`` are those under which more rounds are more of the same, by name, and ``traced``
    those that are known once the model is traced. ``joining`` is how many candidates may still
    join, ``after_runs`` what was predicted of those that did. ``candidates`` are those that ran, in
    their order.
    """

    __pydantic_config__: ClassVar = STRICT

    conditions: ByName[Text]
    traced: ByName[Text]
    sessions: Count
    joining: Count
    costs: MeasuredCosts
    candidates: ByName[EarlierRounds]
    beside: ReferenceTimings
    after_runs: ByName[PredictedRatio]


def conditions_of(options: AnalyzeOptions, plan: TestbedPlan) -> dict[str, str]:
    """Return what has to be the same for rounds to be joined, as far as is known untraced."""
    asked = {
        option: value for option, value in options.asked().items() if option not in _MAY_DIFFER
    }
    name = {} if options.source.name is None else {"what is analysed": options.source.name}
    return {
        "placement-advisor": __version__,
        "TensorFlow": version("tensorflow"),
        "testbed": plan.description,
        "machine (processor, cores, kernel)": calibration_fingerprint(plan),
        **name,
        **{option: value or "given" for option, value in asked.items()},
    }


def traced_conditions(request: AnalysisRequest) -> dict[str, str]:
    """Return what has to be the same of what was traced."""
    return {"batch": str(request.traced.batch_size), "graph": request.graph.fingerprint}


def check_same_conditions(then: Mapping[str, str], now: Mapping[str, str], folder: Path) -> None:
    """Check that more rounds would be more of the same.

    Raises:
        AdvisorError: something differs; it says what.
    """
    differs = [
        f"{name}: {then.get(name, _NOT_GIVEN)} then, {now.get(name, _NOT_GIVEN)} now"
        for name in dict.fromkeys((*then, *now))
        if then.get(name) != now.get(name)
    ]
    if differs:
        raise AdvisorError(
            f"{folder}: cannot be resumed, its rounds ran under other conditions: "
            f"{'; '.join(differs)}",
            hint="ask as then, or leave out --resume to start again; with -o the earlier one stays",
        )


def check_candidates_exist(kept: ResumeState, known: Collection[str], folder: Path) -> None:
    """Check that all that ran is among the candidates that are known.

    Raises:
        AdvisorError: something is not, as in a file that was changed by hand.
    """
    gone = next((n for n in (*kept.candidates, *kept.after_runs) if n not in known), None)
    if gone is not None:
        raise AdvisorError(
            f"{folder / ROUNDS_FILE}: cannot be resumed from: there is no candidate {shown(gone)}",
            hint="leave out --resume to start again",
        )


def read_resume_state(folder: Path) -> ResumeState:
    """Return what an analysis has left in its folder.

    Raises:
        AdvisorError: there is no analysis that ran, or its file cannot be read.
    """
    file = folder / ROUNDS_FILE
    if not file.exists():
        raise AdvisorError(
            f"{folder}: nothing to resume: it holds no analysis of which rounds ran",
            hint="leave out --resume, or name the folder of an earlier analysis with -o",
        )
    try:
        kept = read(ResumeState, file)
        if not any(any(each.rounds) for each in kept.candidates.values()):
            raise MisfitError("no round was timed", "candidates")
    except MisfitError as misfit:
        raise AdvisorError(
            f"{file}: cannot be resumed from: {misfit}", hint="leave out --resume to start again"
        ) from None
    return kept


def read_searched_placements(
    folder: Path, kept: ResumeState, graph: OpGraph
) -> dict[str, Placement]:
    """Return the placements that ran and that searches had found: the others follow from costs.

    Raises:
        PlacementError: one cannot be read, or is of another graph.
    """
    found = {}
    for label in kept.candidates:
        file = folder / "placements" / f"{label}.json"
        if label == SEARCHED or label.startswith(f"{SEARCHED}-"):
            found[label], _ = read_placement(file, graph)
    return found


def write_resume_state(kept: ResumeState, folder: Path) -> None:
    """Write what `read_kept` reads."""
    text = json.dumps(plain(kept))
    (folder / ROUNDS_FILE).write_text(f"{text}\n", encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisSnapshot:
    """What there is of an analysis that goes on: what it is doing, and what `Analysis` will have.

    ``testbed`` is None until its costs are known.
    """

    doing: str
    title: str
    model: analysis_result.Model
    testbed: analysis_result.TestbedSummary | None
    candidates: tuple[analysis_result.Candidate, ...]


class AnalysisRecorder(Protocol):
    """Keeps what an analysis finds, as soon as it is found."""

    def placements(self, graph: OpGraph, cluster: Cluster, placements: Sequence[Placement]) -> None:
        """Keep placements of the step as it was traced."""

    def prediction(self, label: str, schedule: Schedule, ratio: PredictedRatio | None) -> None:
        """Keep what is predicted of a candidate; it stays as it is, whatever is measured later."""

    def prediction_after_runs(self, label: str, ratio: PredictedRatio) -> None:
        """Keep what is predicted of a candidate when others have run and it has not."""

    def graph(self, graph: OpGraph) -> None:
        """Keep the graph that the bound is about."""

    def rounds(self, kept: ResumeState) -> None:
        """Keep what more rounds can be added to."""

    def profile(self, label: str, files: ProfileFiles) -> str:
        """Keep the raw profiles of a candidate; return where, for reports."""

    def show(self, analysis: analysis_result.Analysis | AnalysisSnapshot) -> None:
        """Show how far the analysis is, and last the whole of it."""
