"""What an analysis leaves for `advisor analyze --resume`: its rounds, and all that they rest on.

Rounds that are added have to be more of the same. So the costs stay as they were measured, from
which placements and predictions follow, and what competes stays the same. Refused is what was asked
otherwise, ran elsewhere or by other versions, or has another graph. The file is written by the same
version that reads it, and is not trusted all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from annotated_types import Gt, Lt

from placement_advisor import __version__
from placement_advisor.analysis.doubts import MEASURED_DOUBT
from placement_advisor.analysis.options import OPEN_PORTS
from placement_advisor.analysis.price import MeasuredCosts
from placement_advisor.analysis.run import Beside
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.files.contract import (
    STRICT,
    ByName,
    Count,
    Ns,
    Positive,
    Rows,
    Text,
    json_text,
    like,
    read,
)
from placement_advisor.files.foreign_json import MisfitError, shown
from placement_advisor.files.limits import MAX_NS
from placement_advisor.graph.placement import read_placement
from placement_advisor.machine.cluster_file import cluster_as_toml, read_cluster
from placement_advisor.machine.fingerprints import calibration_fingerprint
from placement_advisor.measurement.failure import Failure
from placement_advisor.simulator.sensitivity import PredictedRatio
from placement_advisor.solvers.step.latency import FAMILY as SEARCHED
from placement_advisor.testbed.costing import Costing
from placement_advisor.testbed.trial import Earlier

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

    conditions: Mapping[str, str]
    traced: Mapping[str, str]
    sessions: int
    joining: int
    costs: MeasuredCosts
    candidates: Mapping[str, Earlier]
    beside: Beside
    after_runs: Mapping[str, PredictedRatio]


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
        return read(_File, file).kept(f"{file}: cluster")
    except MisfitError as misfit:
        raise AdvisorError(
            f"{file}: cannot be resumed from: {misfit}", hint="leave out --resume to start anew"
        ) from None


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
    (folder / FILE).write_text(json_text(_File.of(kept)), encoding="utf-8")


_Number = Annotated[float, Gt(0), Lt(MAX_NS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier(Earlier):
    rounds: Rows[Rows[Ns]]
    warmup_ns: Rows[Ns]
    failure: Failure | None
    is_brief: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    as_is_ns: Rows[Ns]
    weak_ns: Rows[Ns]
    without_as_is: bool
    warnings: Rows[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AfterRuns:
    ratio: _Number
    low: _Number
    high: _Number
    runs: Count


class _Cost(NamedTuple):
    time_ns: Ns
    basis: CostBasis


_Table = ByName[_Cost]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """Tables by how many samples a share has, or why shares did not run."""

    tables: Mapping[Positive, _Table]
    refusal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collectives:
    call_ns: Ns
    launch_ns: Ns
    hop_ns: Ns
    ns_per_byte: _Number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    cluster: str
    step_overhead_ns: Ns
    ops: _Table
    shares: ByName[_Shares]
    collectives: _Collectives | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    __pydantic_config__: ClassVar = STRICT

    conditions: ByName[Text]
    traced: ByName[Text]
    sessions: Count
    joining: Count
    candidates: ByName[_Earlier]
    beside: _Beside
    after_runs: ByName[_AfterRuns]
    costs: _Costs

    @classmethod
    def of(cls, kept: Kept) -> _File:
        costing, shared = kept.costs.costing, kept.costs.collectives
        return like(
            cls,
            kept,
            candidates={name: like(_Earlier, each) for name, each in kept.candidates.items()},
            beside=like(_Beside, kept.beside),
            after_runs={name: like(_AfterRuns, each) for name, each in kept.after_runs.items()},
            costs=_Costs(
                cluster=cluster_as_toml(costing.cluster),
                step_overhead_ns=costing.step_overhead_ns,
                ops=_rows(costing.costs),
                shares={program: _shares(each) for program, each in kept.costs.shares.items()},
                collectives=None if shared is None else like(_Collectives, shared),
            ),
        )

    def kept(self, where: str) -> Kept:
        """Return what the file holds; ``where`` names its cluster in errors."""
        if not any(any(each.rounds) for each in self.candidates.values()):
            raise MisfitError("no round was timed", "candidates")
        costs, shared = self.costs, self.costs.collectives
        return like(
            Kept,
            self,
            candidates={name: like(Earlier, each) for name, each in self.candidates.items()},
            beside=like(Beside, self.beside),
            after_runs={
                name: like(PredictedRatio, each, doubt=MEASURED_DOUBT)
                for name, each in self.after_runs.items()
            },
            costs=MeasuredCosts(
                costing=Costing(
                    costs=_table(costs.ops),
                    cluster=read_cluster(costs.cluster.encode(), where),
                    step_overhead_ns=costs.step_overhead_ns,
                ),
                shares={
                    program: {samples: _table(rows) for samples, rows in each.tables.items()}
                    if each.refusal is None
                    else BatchSplitError(each.refusal)
                    for program, each in costs.shares.items()
                },
                collectives=None if shared is None else like(CollectiveTimes, shared),
            ),
        )


def _shares(tables: Mapping[int, CostTable] | BatchSplitError) -> _Shares:
    if isinstance(tables, BatchSplitError):
        return _Shares(tables={}, refusal=tables.message)
    rows = {samples: _rows(table) for samples, table in tables.items()}
    return _Shares(tables=rows, refusal=None)


def _rows(table: CostTable) -> dict[str, _Cost]:
    return {name: _Cost(cost.time_ns, cost.basis) for name, cost in table.costs.items()}


def _table(rows: Mapping[str, _Cost]) -> CostTable:
    return CostTable(
        costs={op: OpCost(time_ns=time_ns, basis=basis) for op, (time_ns, basis) in rows.items()}
    )
