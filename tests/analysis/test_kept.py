"""What an analysis leaves to go on from: written and read again, and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sample_analysis import OPTIONS
from sample_values import links_between

from placement_advisor.analysis.recording import (
    ROUNDS_FILE,
    ResumeState,
    check_candidates_exist,
    check_same_conditions,
    conditions_of,
    read_resume_state,
    read_searched_placements,
    write_resume_state,
)
from placement_advisor.analysis.runs import ReferenceTimings
from placement_advisor.analysis.step_costs import MeasuredCosts
from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import (
    Basis,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Sharing,
)
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import CandidateFailure, FailureKind
from placement_advisor.simulator.sensitivity import PredictedRatio
from placement_advisor.solvers.effort import Effort
from placement_advisor.testbed.benchmark import EarlierRounds
from placement_advisor.testbed.cost_measurement import CostMeasurement

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = CostTable(
    costs={
        "a/MatMul": OpCost(time_ns=12_345, basis=CostBasis.MEASURED),
        "b": OpCost(time_ns=0, basis=CostBasis.GUESSED),
    }
)
W0, W1 = "worker:0", "worker:1"
CLUSTER = Cluster(
    devices=(
        Device(name=W0, kind="CPU", launch_overhead_ns=17),
        Device(name=W1, kind="CPU", remote_end_ns=5),
    ),
    links=links_between(
        (W0, W1),
        200_000,
        bandwidth_bytes_per_s=1.5e9 / 7,
        basis=Basis.MEASURED,
        curve=((1, 200_000), (1_000, 230_000)),
        sender=CopyWork(per_copy_ns=3, ns_per_byte=0.1),
    ),
    dispatch=Dispatch(step_overhead_ns=9, asleep_ns=4),
    sharing=Sharing(split_ratio=1.1),
)
KEPT = ResumeState(
    conditions={"--steps": "4", "testbed": "two"},
    traced={"graph": "0123"},
    sessions=2,
    joining=1,
    costs=MeasuredCosts(
        costing=CostMeasurement(costs=TABLE, cluster=CLUSTER, step_overhead_ns=77),
        shares={"batch": {16: TABLE, 8: CostTable(costs={})}},
        collectives=CollectiveTimes(call_ns=1, launch_ns=2, hop_ns=3, ns_per_byte=0.25),
    ),
    candidates={
        "single": EarlierRounds(
            rounds=((1, 2), (3, 4)), warmup_ns=(9, 9), failure=None, is_brief=False
        ),
        "searched-2": EarlierRounds(
            rounds=((), (5, 6)), warmup_ns=(), failure=None, is_brief=False
        ),
        "alternating": EarlierRounds(
            rounds=((),),
            warmup_ns=(1,),
            failure=CandidateFailure(
                kind=FailureKind.CRASHED, message="it crashed", in_full="x" * 20_000
            ),
            is_brief=True,
        ),
    },
    beside=ReferenceTimings(
        as_is_ns=(4, 4, 4, 5), weak_ns=(7,), without_as_is=False, warnings=("so",)
    ),
    after_runs={
        "searched-2": PredictedRatio(
            ratio=0.9, low=0.8, high=1.1, doubt=MEASURED_UNCERTAINTY, runs=3
        )
    },
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_resume_state(KEPT, tmp_path)
    assert read_resume_state(tmp_path) == KEPT


def test_why_shares_of_a_batch_did_not_run_is_kept_too(tmp_path: Path) -> None:
    without = replace(KEPT.costs, shares={"batch": "it does not run"}, collectives=None)
    write_resume_state(replace(KEPT, costs=without), tmp_path)
    found = read_resume_state(tmp_path).costs
    assert found == without


def damaged(document: Any) -> Iterator[Any]:
    """Yield a document with each of its values in turn left out, or another one in its place."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield {name: each for name, each in document.items() if name != key}
            for other in (None, "text", -1, [[]], {"x": None}, *damaged(value)):
                yield {**document, key: other}
    elif isinstance(document, list):
        for i, value in enumerate(document):
            yield document[:i] + document[i + 1 :]
            for other in (None, "text", -1, [[]], {"x": None}, *damaged(value)):
                yield [*document[:i], other, *document[i + 1 :]]


def test_a_damaged_file_is_read_or_refused_with_its_name(tmp_path: Path) -> None:
    write_resume_state(KEPT, tmp_path)
    file, refusals = tmp_path / ROUNDS_FILE, list[str]()
    documents = list(damaged(json.loads(file.read_text())))
    for document in documents:
        file.write_text(json.dumps(document))
        try:
            read_resume_state(tmp_path)
        except AdvisorError as error:
            refusals.append(error.message)
    assert all(message.startswith(str(file)) for message in refusals)
    # The rest are texts and figures that may as well be others.
    assert len(refusals) > len(documents) / 2


def test_without_rounds_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="nothing to resume: it holds no analysis of which"):
        read_resume_state(tmp_path)
    none = {"single": replace(KEPT.candidates["single"], rounds=())}
    write_resume_state(replace(KEPT, candidates=none), tmp_path)
    with pytest.raises(AdvisorError, match=r"rounds.json: .* candidates: no round was timed"):
        read_resume_state(tmp_path)


def test_a_placement_that_a_search_found_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match=r"placements/searched-2.json: cannot be read"):
        read_searched_placements(tmp_path, KEPT, OpGraph([], []))


def test_a_candidate_that_is_not_there_any_more_is_named() -> None:
    check_candidates_exist(KEPT, ["single", "searched-2", "alternating", "towers"], Path("out"))
    with pytest.raises(AdvisorError, match=r"rounds.json: .* there is no candidate 'searched-2'"):
        check_candidates_exist(KEPT, ["single", "alternating"], Path("out"))


def test_what_differs_is_said_and_nothing_else() -> None:
    then = {"testbed": "two", "--steps": "4", "--ratios": "3:2"}
    check_same_conditions(then, then, Path("out"))
    with pytest.raises(AdvisorError) as refused:
        check_same_conditions(
            then, {"testbed": "two", "--steps": "8", "--mode": "infer"}, Path("out")
        )
    assert refused.value.message == (
        "out: cannot be resumed, its rounds ran under other conditions: --steps: 4 then, 8 now; "
        "--ratios: 3:2 then, not given now; --mode: not given then, infer now"
    )


# What may be asked otherwise, as more rounds are then still more of the same: how many, where they
# are written, and what opens no ports. What is run by no rounds is refused.
FREE = {"rounds", "output", "resume", "open_ports"}
NOTHING_RUNS = {"hardware", "costs", "run", "quick"}
OTHERWISE: dict[str, Any] = {
    "source": replace(OPTIONS.source, batch_size=64),
    "devices": 3,
    "testbed": TestbedKind.LOGICAL_CPUS,
    "candidates": ("towers",),
    "ratios": (3.0, 2.0),
    "effort": Effort(units=6.0, seed=0),
    "steps": 5,
    "refine": 1,
}


def test_every_option_is_a_condition_or_changes_nothing_about_a_round() -> None:
    # Hosts change the plan, and are named as well.
    assert {field.name for field in fields(OPTIONS)} == FREE | NOTHING_RUNS | {"hosts", *OTHERWISE}


def conditions(**changed: Any) -> dict[str, str]:
    options = replace(OPTIONS, testbed=TestbedKind.WORKERS)
    options = replace(options, **changed)
    plan = plan_testbed(options.testbed, options.devices)
    return conditions_of(options, plan)


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_makes_rounds_others_is_a_condition(name: str) -> None:
    assert conditions() != conditions(**{name: OTHERWISE[name]})


def test_what_leaves_rounds_as_they_are_is_none() -> None:
    assert conditions() == conditions(
        rounds=90, output=Path("elsewhere"), resume=True, open_ports=True
    )
