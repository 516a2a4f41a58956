import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from finding_evidence import measured_as
from placed_steps import HALF_EACH, star
from sample_values import costs_of
from split_steps import split_towers

from placement_advisor.analysis import runs, target_costs
from placement_advisor.analysis.analysis_result import Candidate
from placement_advisor.analysis.assemble import candidates_of, title_of
from placement_advisor.analysis.predictions import (
    _corrections,
    bound_of,
    break_even_of,
    predict,
    propose_all,
)
from placement_advisor.analysis.step_costs import AllCosts, split_costs_from_unsplit
from placement_advisor.candidates.batch_split.split_graph import split_graph
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis, CostSource, CostTable, OpCost
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.presets import read_hardware
from placement_advisor.measurement.measurement import (
    CandidateFailure,
    Comparison,
    FailureKind,
    Interval,
)
from placement_advisor.simulator.sensitivity import CostUncertainty, PredictedRatio
from placement_advisor.solvers.effort import Effort
from placement_advisor.tf.answers import TracedSplit

DOUBT = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)
EFFORT = Effort(units=0.01)


def forecast(*, op_ns, doubt=DOUBT):
    """Foresee a root that eight ops read, each with 7 ns of work to send to."""
    step = star(8, op_ns=op_ns, work=HALF_EACH, latency_ns=20)
    prices = target_costs.StepCosts(
        cluster=step.cluster, costs=step.all_costs(), source=CostSource.ASSUMED, doubt=doubt
    )
    priced = AllCosts(prices=prices, splits={})
    return predict(propose_all(step.graph, priced, ("single", "alternating-ops"), EFFORT))


def compared(ratio):
    """Return a comparison that came out at a ratio, None for none."""
    interval = ratio and Interval(median=ratio, low=ratio, high=ratio)
    return interval and Comparison(baseline="single", ratio=interval, rounds=9)


def candidate(name, predicted, measured):
    return Candidate(
        name=name,
        family=name,
        rationale="",
        comparison=compared(measured),
        predicted_ratio=PredictedRatio(ratio=predicted, low=predicted, high=predicted, doubt=DOUBT),
    )


def test_a_split_that_did_not_run_is_corrected_by_the_median_of_those_that_did():
    found = _corrections(
        ["towers", "searched", "pipeline", "alternating", "searched for faster links"],
        [
            candidate("towers", 1.0, 1.1),
            candidate("searched", 0.8, 1.04),
            candidate("pipeline", 1.2, None),
            # Copies dominate it, which says little of splits that anybody would make.
            candidate("alternating", 2.0, 4.0),
            # Another graph: its error is not that of these.
            candidate("batch", 1.0, 3.0),
        ],
    )
    assert found == {
        "towers": pytest.approx(1.1),
        "searched": pytest.approx(1.3),
        "pipeline": pytest.approx(1.2),
        "alternating": pytest.approx(2.0),
        "searched for faster links": pytest.approx(1.2),
    }
    assert _corrections(["towers"], [candidate("towers", 0.8, None)]) == {}
    found = _corrections(["towers", "alternating"], [candidate("alternating", 2.0, 3.0)])
    assert found == {"towers": 1.5, "alternating": 1.5}


def test_a_proof_says_how_far_it_goes_if_costs_are_wrong():
    firm = bound_of(forecast(op_ns=6, doubt=CostUncertainty(copies=1.1, launches=1, ops=1)))
    assert firm.proves_single
    assert firm.proves_single_if_wrong
    assert firm.costs_from == "assumed"
    wrong = bound_of(forecast(op_ns=6, doubt=CostUncertainty(copies=2, launches=1, ops=1)))
    assert wrong.proves_single
    assert not wrong.proves_single_if_wrong
    # With copies at half their cost, 3 in whole ns, the root's device is busy for 10 + 8 * 3 of 58.
    assert 0.03 < (wrong.most_to_gain_if_wrong or 0) <= 1 - 34 / 58
    none = bound_of(forecast(op_ns=60, doubt=CostUncertainty(copies=2, launches=1, ops=1)))
    assert (none.proves_single, none.most_to_gain_if_wrong) == (False, None)


def test_a_break_even_says_of_today_what_was_measured_and_of_a_split_that_failed_nothing():
    known = forecast(op_ns=60)
    predicted = known.predicted[SPLIT].ratio
    found = break_even_of(known, [candidate(SPLIT, predicted.ratio, 1.5)], None, EFFORT)
    best = found.bandwidth.here.best
    assert found.corrections[SPLIT] == pytest.approx(1.5 / predicted.ratio)
    assert best.split != SPLIT or best.ratio == pytest.approx(1.5)
    wrong = replace(candidate(SPLIT, 0.5, None), failure=WRONG)
    found = break_even_of(known, [wrong], None, EFFORT)
    told = () if found is None else found.sweeps()
    assert all(point.best.split != SPLIT for sweep in told for point in sweep.points)


SPLIT = "alternating-ops"
WRONG = CandidateFailure(kind=FailureKind.WRONG_RESULT, message="off by 2")
TOO_LARGE = CandidateFailure(kind=FailureKind.DOES_NOT_FIT, message="lacks 1 MB")
CRASHED = CandidateFailure(kind=FailureKind.CRASHED, message="killed")


def without_room_for(name, found):
    """Return what was foreseen, but for this one, which does not fit."""
    short = replace(found.predicted[name], too_large=TOO_LARGE)
    return replace(found, predicted={**found.predicted, name: short})


def outcome(step_ns, ratio=None, failure=None):
    return runs.CandidateRun(
        measured=None if step_ns is None else measured_as(step_ns),
        comparison=compared(ratio),
        failure=failure,
        files=None,
    )


def test_predictions_say_what_does_not_fit_and_runs_whether_they_failed():
    known = forecast(op_ns=60)
    alone, split = candidates_of(without_room_for(SPLIT, known), runs.RunResults())
    assert (alone.name, split.name) == ("single", SPLIT)
    assert (alone.failure, split.failure) == (None, TOO_LARGE)
    assert alone.predicted_ratio is None
    assert None not in (split.predicted, split.predicted_ratio)
    assert (split.measured, split.comparison) == (None, None)
    outcomes = {"single": outcome(500), SPLIT: outcome(None, failure=CRASHED)}
    ran = candidates_of(without_room_for("single", known), runs.RunResults(outcomes=outcomes))
    assert [each.failure for each in ran] == [None, CRASHED]
    named = SimpleNamespace(candidates=(SPLIT,))
    assert [each.label for each in runs.candidates_to_run(known, named)] == [SPLIT]
    assert runs.candidates_to_run(without_room_for(SPLIT, known), named) == ()


def test_a_ratio_that_cannot_be_is_a_broken_law_of_that_candidate_alone():
    for ratio, broken in ((1.2, 0), (0.2, 1)):
        outcomes = {"single": outcome(500), SPLIT: outcome(600, ratio)}
        found = candidates_of(forecast(op_ns=60), runs.RunResults(outcomes=outcomes))
        assert [len(each.broken_laws) for each in found] == [0, broken]


def test_what_is_there_to_be_understood_runs_briefly_if_it_is_brief_and_nothing_was_named():
    known = forecast(op_ns=60)
    proposals = known.proposals
    split = replace(proposals.placements[SPLIT], label="alternating", family="alternating")
    answers = {"single": proposals.placements["single"], "alternating": split}
    found = predict(replace(proposals, answers=answers))
    asked = SimpleNamespace(candidates=None, steps=4)
    assert runs.candidates_to_run(found, asked) == ()
    assert runs.candidate_to_run_briefly(found, asked) is split
    assert runs.candidate_to_run_briefly(known, asked) is None
    # It takes 200 ns and more, eight times five steps as long as the budget of 20 s.
    long = SimpleNamespace(candidates=None, steps=10**8)
    assert runs.candidate_to_run_briefly(found, long) is None
    named = SimpleNamespace(candidates=("alternating",), steps=4)
    assert runs.candidate_to_run_briefly(found, named) is None
    assert runs.candidates_to_run(found, named) == (split,)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("functional_12", "ranker"),
        ("sequential_1", "ranker"),
        ("model", "ranker"),
        ("train_step", "train_step"),
        ("sequential_recommender", "sequential_recommender"),
    ],
)
def test_a_name_that_keras_made_up_gives_way_to_that_of_the_file(name, title):
    assert title_of(name, Path("models/ranker.py")) == title


# Ops that take so long that half of them elsewhere is nearly twice as fast.
LONG_NS = 2_000


def foreseen_with(op_ns, *further, is_searched=True):
    """Foresee the single device, a split that is bad on purpose, and further ones."""
    found = forecast(op_ns=op_ns)
    answers = {**found.proposals.answers, **{each.label: each for each in further}}
    if is_searched:
        answers["searched"] = NotApplicable(family="searched", reason="none was better")
    return predict(replace(found.proposals, answers=answers))


def half(label="towers"):
    names = ["root", *(f"op{i}" for i in range(8))]
    device_of = {name: "b" if i > 4 else "a" for i, name in enumerate(names)}
    return Placement(label=label, family="towers", device_of=device_of, rationale="")


def ran(ratios, failed=None):
    """Return results of splits that took so many times as long as the single device."""

    def rounds(ratio, failure=None):
        found = outcome(round(ratio * 1_000), failure=failure)
        return replace(found, measured=replace(found.measured, rounds=found.measured.rounds * 5))

    return runs.RunResults(
        outcomes={
            "single": rounds(1.0),
            **{label: rounds(ratio) for label, ratio in ratios.items()},
            **{label: rounds(ratio, WRONG) for label, ratio in (failed or {}).items()},
        }
    )


def test_a_split_that_was_not_run_runs_if_it_is_expected_to_be_faster_than_all_that_have():
    before = foreseen_with(LONG_NS, half(), is_searched=False)
    found = runs.refine(before, ran({SPLIT: 1.1}), EFFORT)
    assert found.placement == half()
    after = found.predictions.predicted["towers"]
    assert after.after_runs.runs == 1
    # What was predicted before any run stays.
    assert replace(after, after_runs=None) == before.predicted["towers"]
    assert found.predictions.predicted.keys() == before.predicted.keys()


def test_nothing_runs_that_promises_too_little_or_does_not_fit():
    assert runs.refine(foreseen_with(1, half()), ran({SPLIT: 3.0}), EFFORT) is None
    assert runs.refine(foreseen_with(LONG_NS, half()), ran({SPLIT: 0.2}), EFFORT) is None
    before = foreseen_with(LONG_NS, half(), is_searched=False)
    assert runs.refine(before, ran({SPLIT: 0.2}), EFFORT) is None
    assert runs.refine(without_room_for("towers", before), ran({SPLIT: 1.1}), EFFORT) is None


def test_what_a_search_finds_joins_under_a_name_of_its_own():
    pipeline = replace(half("pipeline"), device_of={**half().device_of, "op6": "a"})
    before = foreseen_with(LONG_NS, pipeline)
    rest = {name: each for name, each in before.proposals.answers.items() if name != SPLIT}
    before = predict(replace(before.proposals, answers=rest))
    found = runs.refine(before, ran({"pipeline": 0.95}), EFFORT)
    assert (found.placement.label, found.placement.family) == ("searched-2", "searched")
    assert set(found.placement.device_of.values()) == {"a", "b"}
    prediction = found.predictions.predicted["searched-2"]
    assert None not in (prediction.ratio, prediction.after_runs)
    assert found.predictions.proposals.placements["searched-2"] == found.placement
    again = runs.refine(found.predictions, ran({"pipeline": 0.95, "searched-2": 0.99}), EFFORT)
    assert again is None or again.placement.label == "searched-3"


def test_without_a_run_of_a_split_nothing_is_learned():
    before = foreseen_with(LONG_NS, half())
    for results in (runs.RunResults(), ran({}), ran({}, failed={SPLIT: 0.1})):
        assert runs.refine(before, results, EFFORT) is None
        assert runs.corrected_predictions(before, results) == before


def test_a_split_that_fails_neither_teaches_nor_has_to_be_beaten():
    before = foreseen_with(LONG_NS, half(), is_searched=False)
    found = runs.refine(before, ran({SPLIT: 1.1}, failed={"searched": 0.01}), EFFORT)
    assert found.predictions.predicted["towers"].after_runs == (
        runs.corrected_predictions(before, ran({SPLIT: 1.1})).predicted["towers"].after_runs
    )


def test_in_the_end_all_that_has_not_run_is_predicted_by_what_has():
    before = foreseen_with(LONG_NS, half())
    after = runs.corrected_predictions(before, ran({SPLIT: 2.0}))
    assert after.predicted["single"] == before.predicted["single"]
    assert after.predicted[SPLIT] == before.predicted[SPLIT]
    ratio, expected = before.predicted["towers"].ratio, after.predicted["towers"].after_runs
    # The split that ran took longer than predicted, and so will this one.
    assert expected.ratio > ratio.ratio


GPUS = tuple(Device(name=name, kind="GPU") for name in ("GPU:0", "GPU:1"))
CLUSTER = Cluster(devices=GPUS, links=())


def doubt(*within):
    """Return the doubt where the only op of each device is within these factors."""
    tables = [
        CostTable(costs={"x": OpCost(time_ns=10, basis=CostBasis.KERNEL, within=each)})
        for each in within
    ]
    by_device = dict(zip(CLUSTER.device_names(), tables, strict=True))
    return target_costs.assumed_uncertainty(by_device, CLUSTER)


def test_ops_that_are_half_as_doubtful_by_hand_and_exact_ones_are_like_recorded_ones():
    assert doubt(None, None) == target_costs.ASSUMED_UNCERTAINTY
    assert doubt(1.0, 1.0) == target_costs.RECORDED_UNCERTAINTY
    # In logarithms, half of the way to twice: a quarter of the squares between 1.5 and 2.
    square = math.log(1.5) ** 2 + (math.log(2) ** 2 - math.log(1.5) ** 2) / 4
    found = doubt(math.sqrt(2), math.sqrt(2))
    assert found.copies == pytest.approx(math.exp(math.sqrt(square)), abs=0.005)
    assert (found.launches, found.ops) == (2.0, 1.15)


TRACES = split_towers(hosts=2, samples=4)
TWO_T4 = read_hardware("2xT4")
FIGURES = roofline_by_place(TRACES.whole, TWO_T4)
REPLICAS = ("replica_0/left/product", "replica_1/left/product")


def priced(recorded_ns):
    recorded = costs_of(recorded_ns, CostBasis.MEASURED)
    table = CostTable(costs={**FIGURES["GPU:0"].costs, **recorded.costs})
    prices = target_costs.StepCosts(
        cluster=TWO_T4,
        costs=FIGURES | dict.fromkeys(TWO_T4.device_names(), table),
        source=CostSource.RECORDED,
        doubt=target_costs.RECORDED_UNCERTAINTY,
    )
    split = TracedSplit(
        graphs={"batch": split_graph(TRACES)},
        weak={"batch": split_graph(TRACES.weak(2))},
        samples=(4, 4),
        shares={},
        own=(),
    )
    return split_costs_from_unsplit(split, prices, TRACES.whole)


def test_of_what_was_recorded_a_share_costs_the_part_that_figures_tell():
    by_figures = priced({}).costs["batch"]["GPU:1"]
    whole_ns = FIGURES["GPU:0"].time_ns("left/product")
    found = priced({"left/product": 10 * whole_ns, "join": 0})
    for name in REPLICAS:
        # Half of the samples take about half as long.
        assert 0.4 * whole_ns < by_figures.time_ns(name) < 0.6 * whole_ns
        expected_ns = pytest.approx(10 * by_figures.time_ns(name), abs=5)
        assert found.costs["batch"]["GPU:1"].time_ns(name) == expected_ns
        assert found.costs["batch"]["GPU:1"].costs[name].basis is not CostBasis.MEASURED
        assert found.weak_costs["batch"]["GPU:1"].time_ns(name) == 10 * whole_ns
    # What was fused into another op is so in each share.
    assert found.costs["batch"]["GPU:0"].time_ns("replica_1/join") == 0
    others = {name for name in by_figures.costs if name not in REPLICAS and "join" not in name}
    assert all(found.costs["batch"]["GPU:1"].costs[n] == by_figures.costs[n] for n in others)
    # The host was not recorded; without any recording all is by figures.
    unrecorded = priced({}).costs["batch"]
    assert found.costs["batch"]["CPU:0"] == unrecorded["CPU:0"]
    assert unrecorded == roofline_by_place(split_graph(TRACES).graph, TWO_T4)
