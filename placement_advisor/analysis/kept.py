"""What an analysis leaves for `advisor analyze --resume`: its rounds, and all that they rest on.

Rounds that are added have to be more of the same. So the costs stay as they were measured, from
which placements and predictions follow, and what competes stays the same. Refused is what was asked
otherwise, ran elsewhere or by other versions, or has another graph. The file is written by the same
version that reads it, and is not trusted all the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.analysis.doubts import MEASURED_DOUBT
from placement_advisor.analysis.options import OPEN_PORTS
from placement_advisor.analysis.price import MeasuredCosts
from placement_advisor.analysis.run import Beside
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.files.foreign_json import (
    MAX_TEXT_BYTES,
    MisfitError,
    as_list,
    as_object,
    boolean,
    content,
    field,
    integer,
    list_of,
    object_of,
    parse,
    shown,
    text,
    within,
)
from placement_advisor.files.limits import MAX_NS
from placement_advisor.graph.placement import read_placement
from placement_advisor.machine.cluster_file import cluster_as_toml, read_cluster
from placement_advisor.machine.fingerprints import calibration_fingerprint
from placement_advisor.measurement.failure import Failure, FailureKind
from placement_advisor.simulator.sensitivity import PredictedRatio
from placement_advisor.solvers.step.latency import FAMILY as SEARCHED
from placement_advisor.testbed.costing import Costing
from placement_advisor.testbed.trial import Earlier

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
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
        return _kept(file)
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
    document = {
        "conditions": dict(kept.conditions),
        "traced": dict(kept.traced),
        "sessions": kept.sessions,
        "joining": kept.joining,
        "candidates": {name: _written_earlier(each) for name, each in kept.candidates.items()},
        "as_is_ns": list(kept.beside.as_is_ns),
        "weak_ns": list(kept.beside.weak_ns),
        "without_as_is": kept.beside.without_as_is,
        "warnings": list(kept.beside.warnings),
        "after_runs": {
            name: [each.ratio, each.low, each.high, each.runs]
            for name, each in kept.after_runs.items()
        },
        "costs": _written_costs(kept.costs),
    }
    (folder / FILE).write_text(json.dumps(document) + "\n", encoding="utf-8")


def _written_earlier(earlier: Earlier) -> dict[str, Any]:
    failure = earlier.failure
    return {
        "rounds_ns": [list(steps) for steps in earlier.rounds],
        "warmup_ns": list(earlier.warmup_ns),
        "failure": [failure.kind.value, failure.message, failure.in_full] if failure else None,
        "is_brief": earlier.is_brief,
    }


def _written_costs(costs: MeasuredCosts) -> dict[str, Any]:
    shared = costs.collectives
    return {
        "cluster": cluster_as_toml(costs.costing.cluster),
        "step_overhead_ns": costs.costing.step_overhead_ns,
        "ops": _written_table(costs.costing.costs),
        "shares": {
            program: tables.message
            if isinstance(tables, BatchSplitError)
            else {str(samples): _written_table(table) for samples, table in tables.items()}
            for program, tables in costs.shares.items()
        },
        "collectives": None
        if shared is None
        else [shared.call_ns, shared.launch_ns, shared.hop_ns, shared.ns_per_byte],
    }


def _written_table(table: CostTable) -> dict[str, Any]:
    return {name: [cost.time_ns, cost.basis.value] for name, cost in table.costs.items()}


def _kept(file: Path) -> Kept:
    document = as_object(parse(content(file)))
    kept = Kept(
        conditions=field(document, "conditions", partial(object_of, text)),
        traced=field(document, "traced", partial(object_of, text)),
        sessions=field(document, "sessions", _count),
        joining=field(document, "joining", _count),
        candidates=field(document, "candidates", partial(object_of, _earlier)),
        beside=Beside(
            as_is_ns=field(document, "as_is_ns", _times),
            weak_ns=field(document, "weak_ns", _times),
            without_as_is=field(document, "without_as_is", boolean),
            warnings=field(document, "warnings", partial(list_of, _long_text)),
        ),
        after_runs=field(document, "after_runs", partial(object_of, _after_runs)),
        costs=field(document, "costs", partial(_costs, file)),
    )
    if not any(any(each.rounds) for each in kept.candidates.values()):
        raise MisfitError("no round was timed", "candidates")
    return kept


def _earlier(value: object) -> Earlier:
    document = as_object(value)
    return Earlier(
        rounds=field(document, "rounds_ns", partial(list_of, _times)),
        warmup_ns=field(document, "warmup_ns", _times),
        failure=field(document, "failure", _failure),
        is_brief=field(document, "is_brief", boolean),
    )


def _failure(value: object) -> Failure | None:
    if value is None:
        return None
    match as_list(value):
        case [kind, message, in_full] if kind in [each.value for each in FailureKind]:
            return Failure(
                kind=FailureKind(kind), message=_long_text(message), in_full=_long_text(in_full)
            )
    raise MisfitError(f"{shown(value)} is no failure")


def _after_runs(value: object) -> PredictedRatio:
    match as_list(value):
        case [ratio, low, high, runs]:
            return PredictedRatio(
                ratio=_number(ratio),
                low=_number(low),
                high=_number(high),
                doubt=MEASURED_DOUBT,
                runs=_count(runs),
            )
    raise MisfitError(f"{shown(value)} is no prediction")


def _costs(file: Path, value: object) -> MeasuredCosts:
    document = as_object(value)
    toml = field(document, "cluster", _long_text)
    return MeasuredCosts(
        costing=Costing(
            costs=field(document, "ops", _table),
            cluster=read_cluster(toml.encode(), f"{file}: cluster"),
            step_overhead_ns=field(document, "step_overhead_ns", _ns),
        ),
        shares=field(document, "shares", partial(object_of, _shares)),
        collectives=field(document, "collectives", _collectives),
    )


def _shares(value: object) -> Mapping[int, CostTable] | BatchSplitError:
    if isinstance(value, str):
        return BatchSplitError(_long_text(value))
    found = {}
    for samples, table in as_object(value).items():
        if not samples.isdecimal():
            raise MisfitError(f"{shown(samples)} is no number of samples")
        found[int(samples)] = within(samples, _table, table)
    return found


def _table(value: object) -> CostTable:
    return CostTable(costs=object_of(_op_cost, value))


def _op_cost(value: object) -> OpCost:
    match as_list(value):
        case [time_ns, basis] if basis in [each.value for each in CostBasis]:
            return OpCost(time_ns=_ns(time_ns), basis=CostBasis(basis))
    raise MisfitError(f"{shown(value)} is no cost of an op")


def _collectives(value: object) -> CollectiveTimes | None:
    if value is None:
        return None
    match as_list(value):
        case [call_ns, launch_ns, hop_ns, ns_per_byte]:
            return CollectiveTimes(
                call_ns=_ns(call_ns),
                launch_ns=_ns(launch_ns),
                hop_ns=_ns(hop_ns),
                ns_per_byte=_number(ns_per_byte),
            )
    raise MisfitError(f"{shown(value)} are no times of collectives")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_NS:
        raise MisfitError(f"{shown(value)} is not a positive number")
    return float(value)


def _ns(value: object) -> int:
    return integer(value, "a time in ns", high=MAX_NS)


def _times(value: object) -> tuple[int, ...]:
    return list_of(_ns, value)


def _count(value: object) -> int:
    return integer(value, "a count")


# Reports of crashes are longer than names.
_long_text = partial(text, most_chars=MAX_TEXT_BYTES)
