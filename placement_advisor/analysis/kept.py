"""What an analysis leaves for `advisor analyze --resume`: its rounds, and all that they rest on.

Rounds that are added have to be more of the same. So the costs stay as they were measured, from
which placements and predictions follow, and what competes stays the same. Refused is what was asked
otherwise, ran elsewhere or by other versions, or has another graph. The file is written by the same
version that reads it, and is not trusted all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from placement_advisor import __version__
from placement_advisor.analysis.options import OPEN_PORTS
from placement_advisor.analysis.price import MeasuredCosts
from placement_advisor.analysis.run import Beside
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import STRICT, ByName, Count, Text, plain, read
from placement_advisor.files.foreign_json import MisfitError, shown
from placement_advisor.graph.placement import read_placement
from placement_advisor.machine.fingerprints import calibration_fingerprint
from placement_advisor.simulator.sensitivity import PredictedRatio
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.testbed.benchmark import EarlierRounds

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.subject import Subject
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.testbed_plan import TestbedPlan

FILE = "rounds.json"
# What may be asked otherwise: more rounds are still more of the same.
_FREE = ("--rounds", "--time-limit", OPEN_PORTS)
_NOT_GIVEN = "not given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
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
    beside: Beside
    after_runs: ByName[PredictedRatio]


def conditions_of(options: AnalyzeOptions, plan: TestbedPlan) -> dict[str, str]:
    """Return what has to be the same for rounds to be joined, as far as is known untraced."""
    asked = {option: value for option, value in options.asked().items() if option not in _FREE}
    name = {} if options.source.name is None else {"what is analysed": options.source.name}
    return {
        "placement-advisor": __version__,
        "TensorFlow": version("tensorflow"),
        "testbed": plan.description,
        "machine (processor, cores, kernel)": calibration_fingerprint(plan),
        **name,
        **{option: value or "given" for option, value in asked.items()},
    }


def conditions_traced(subject: Subject) -> dict[str, str]:
    """Return what has to be the same of what was traced."""
    return {"batch": str(subject.traced.batch_size), "graph": subject.graph.fingerprint}


def check_same(then: Mapping[str, str], now: Mapping[str, str], folder: Path) -> None:
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
            hint="ask as then, or leave out --resume to start anew; with -o the earlier one stays",
        )


def check_there(kept: Kept, known: Collection[str], folder: Path) -> None:
    """Check that all that ran is among the candidates that are known.

    Raises:
        AdvisorError: something is not, as in a file that was changed by hand.
    """
    gone = next((n for n in (*kept.candidates, *kept.after_runs) if n not in known), None)
    if gone is not None:
        raise AdvisorError(
            f"{folder / FILE}: cannot be resumed from: there is no candidate {shown(gone)}",
            hint="leave out --resume to start anew",
        )


def read_kept(folder: Path) -> Kept:
    """Return what an analysis has left in its folder.

    Raises:
        AdvisorError: there is no analysis that ran, or its file cannot be read.
    """
    file = folder / FILE
    if not file.exists():
        raise AdvisorError(
            f"{folder}: nothing to resume: it holds no analysis of which rounds ran",
            hint="leave out --resume, or name the folder of an earlier analysis with -o",
        )
    try:
        kept = read(Kept, file)
        if not any(any(each.rounds) for each in kept.candidates.values()):
            raise MisfitError("no round was timed", "candidates")
    except MisfitError as misfit:
        raise AdvisorError(
            f"{file}: cannot be resumed from: {misfit}", hint="leave out --resume to start anew"
        ) from None
    return kept


def read_searched(folder: Path, kept: Kept, graph: OpGraph) -> dict[str, Placement]:
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


def write_kept(kept: Kept, folder: Path) -> None:
    """Write what `read_kept` reads."""
    text = json.dumps(plain(kept))
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")
