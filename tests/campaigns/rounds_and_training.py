"""Holds ratios from timing rounds against those of training: thousands of steps in a row.

For each random model an analysis runs up to its profiles: its candidates, its rounds, the user's
own step beside them. Where it would profile, the same candidates are timed in rounds once more, and
in rounds of longer turns, by the same rule of when to stop. Then each split runs for a while, in
the order single, split, split, single. Of the splits of a model the fastest five run so.
"""

import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from math import sqrt
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace

from campaign import run_campaign
from random_models import random_model
from tables import spread, table_head, table_row

from placement_advisor import defaults
from placement_advisor.analysis import predictions, runs, step_costs, tracing
from placement_advisor.analysis.options import AnalyzeOptions
from placement_advisor.analysis.progress import AnalysisProgress, SilentListener
from placement_advisor.errors import AdvisorError
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import Verdict, compare, least_samples, paired_ratios
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress, time_in_rounds
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import NS_PER_S

SEEDS = (
    *(390637, 56187, 934520, 831013, 948395, 964084),
    *(45255, 883668, 779113, 596525, 619537, 69156),
)
_SPLITS, _RUN_S = 5, 30.0
# The rounds of an analysis, and the same once more: that they differ is noise, or as-is beside.
ANALYSIS, AGAIN = "as analyzed", "again"


class _NotProfiledError(Exception):
    """Ends an analysis whose rounds are done: all else has been seen to."""


def examine(case):
    """Return what was found of each split of a model, or why nothing was."""
    try:
        return {"splits": _examined(random_model(int(case)))}
    except AdvisorError as error:
        return {"splits": [], "why": error.message}


def _examined(model):
    found = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.py"
        path.write_text(model.text)
        bundle, scratch, out = (Path(folder) / name for name in ("bundle", "scratch", "out"))
        bundle.mkdir()
        scratch.mkdir()
        source = ModelSource(path=str(path), mode="train" if model.training else "infer")
        options = AnalyzeOptions(source=source, testbed=TestbedKind.WORKERS, output=out)
        course = AnalysisProgress(SilentListener(), options)
        loader, watcher = stack.enter_context(Child("loader")), course.watcher
        tracing.load_model(source, loader, watcher)
        traced = tracing.trace_loaded(source, bundle, loader, watcher)
        plan = plan_testbed(options.testbed, options.devices)
        splits = tracing.split_batch(options, options.devices, traced, bundle, loader, watcher)
        of_model = {"options": options, "plan": plan, "traced": traced, "splits": splits}
        subject = tracing.AnalysisRequest(**of_model, growth=None)
        own = loader, bundle, scratch, watcher
        apparatus = step_costs.make_testbed_session(subject, *own, None)
        stack.callback(apparatus.close)
        measured = step_costs.measure_costs_of_step(subject, apparatus, course)
        costs = step_costs.costs_from_measured(subject, measured)
        families, effort = options.families, options.effort
        proposed = predictions.propose_all(subject.graph, costs, families, effort)
        forecast = predictions.predict(proposed)

        def look(results):
            nonlocal forecast
            refined = runs.refine(forecast, results, effort)
            forecast = refined.predictions if refined else forecast
            return refined and refined.placement

        def show(doing, results):
            if doing == "profiling":
                found.extend(_trained(apparatus, forecast))
                raise _NotProfiledError

        with suppress(_NotProfiledError):
            steering = SimpleNamespace(show=show, refine=look, advise=lambda _: [])
            beside = runs.ReferenceTimings()
            of_candidates = runs.CandidateRuns(options, apparatus, course, steering, beside)
            of_candidates.run(runs.candidates_to_run(forecast, options), None, None)
    return found


def _trained(apparatus, forecast):
    """Time longer turns, then run the splits that were fastest; yield what is found of each."""
    entries = {each.placement.label: each for each in apparatus.trial.running() if any(each.rounds)}
    if defaults.BASELINE not in entries:
        return
    among = apparatus.trial.competitors
    turns = {ANALYSIS: {label: entry.rounds for label, entry in entries.items()}}
    turns |= _in_longer_turns(apparatus, entries)
    alone = entries[defaults.BASELINE]

    def ratio(label):
        return median(paired_ratios(alone.rounds, entries[label].rounds) or [1.0])

    for label in sorted(entries.keys() - {defaults.BASELINE}, key=ratio)[:_SPLITS]:
        predicted = forecast.predicted[label].ratio
        rounds = {name: _medians(of[defaults.BASELINE], of[label]) for name, of in turns.items()}
        found = {"split": label, "among": among, "rounds": rounds, **_abba(alone, entries[label])}
        yield found | {"predicted": predicted and predicted.ratio}


def _in_longer_turns(apparatus, entries):
    """Return the rounds of each candidate, by how long turns are.

    Those are missing that would not have an interval within the time of an analysis.
    """
    steps_s = sum(median(chain(*entry.rounds)) for entry in entries.values()) / NS_PER_S
    found = {}
    for name, steps in {AGAIN: defaults.STEPS, "80 steps": 80}.items():
        trial = Benchmark(apparatus.testbed, steps=steps, watcher=SilentProgress())
        trial.entries |= {label: replace(each, rounds=[]) for label, each in entries.items()}
        rounds_s = least_samples(trial.competitors) * (1 + steps) * steps_s
        if name == AGAIN or rounds_s <= defaults.TIMING_BUDGET_S:
            time_in_rounds(trial, None, lambda _: None)
            found[name] = {label: each.rounds for label, each in trial.entries.items()}
    return found


def _medians(alone, split):
    return [
        (round(median(theirs)), round(median(ours)))
        for theirs, ours in zip(alone, split, strict=False)
        if theirs and ours
    ]


def _abba(alone, split):
    """Return what long runs took, of the single device and of a split."""
    found = {"single_runs": [], "split_runs": []}
    order = (("single_runs", alone), ("split_runs", split))
    for batch, pair in enumerate((order, order[::-1])):
        for name, entry in pair:
            step_s = median(chain(*entry.rounds)) / NS_PER_S
            steps = max(defaults.STEPS, round(_RUN_S / step_s))
            answer = entry.bench.run_steps(entry.placement.label, batch, 1 + steps)
            if isinstance(answer, CallFailure):
                return {"failure": answer.message}
            took = {"mean_ns": round(mean(answer[1:])), "median_ns": round(median(answer[1:]))}
            found[name].append({"steps": steps, **took})
    return found


def table(results):
    """Return how far ratios from rounds are from those of runs in a row."""
    found = [[each for each in result["splits"] if "single_runs" in each] for result in results]
    trained = [line for of_model in found for line in of_model]
    models = sum(map(bool, found))
    columns = "rounds over runs | of that a shift | even over odd rounds | `single` over its runs"
    rows = [
        f"{len(trained)} splits of {models} models; each difference: median / 90th percentile\n",
        table_head(f"turns | splits | rounds | {columns} | firm verdicts | differ | surely"),
    ]
    names = dict.fromkeys(name for line in trained for name in line["rounds"])
    rows += [_row(name, [line for line in trained if name in line["rounds"]]) for name in names]
    pairs = [_ratios(line) for line in trained]
    alone = [[run["mean_ns"] for run in line["single_runs"]] for line in trained]
    by_median = [_ratio(line, "median_ns") / _ratio(line) for line in trained]
    foretold = [line for line in trained if line["predicted"] is not None]
    over_rounds = [line["predicted"] / _median_ratio(line["rounds"][ANALYSIS]) for line in foretold]
    over_runs = [line["predicted"] / _ratio(line) for line in foretold]
    return "\n".join(rows) + (
        f"\n\nRuns: the first pair over the second {_spread([of[0] / of[3] for of in pairs])}, "
        f"the first run of `single` over the second {_spread([a / b for a, b in alone])}; ratios "
        f"of their medians over those of their means {_spread(by_median)}.\n"
        f"Predictions over rounds as analyzed {_spread(over_rounds)}, "
        f"over runs {_spread(over_runs)}."
    )


def _row(name, lines):
    rounds = [line["rounds"][name] for line in lines]
    differences = [_median_ratio(line["rounds"][name]) / _ratio(line) for line in lines]
    halves = [_median_ratio(each[::2]) / _median_ratio(each[1::2]) for each in rounds]
    alone = [
        median(ns for ns, _ in each) / mean(run["mean_ns"] for run in line["single_runs"])
        for each, line in zip(rounds, lines, strict=True)
    ]
    firm, differ, surely = 0, 0, 0
    for line in lines:
        alone_ns, split_ns = ([(pair[i],) for pair in line["rounds"][name]] for i in (0, 1))
        found = compare(defaults.BASELINE, alone_ns, split_ns, among=line["among"])
        if found is not None and found.verdict is not Verdict.INCONCLUSIVE:
            firm += 1
            denied = [
                (found.verdict is Verdict.FASTER) != (ratio < defaults.WORTHWHILE_RATIO)
                for ratio in (_ratio(line), *_ratios(line))
            ]
            differ, surely = differ + denied[0], surely + all(denied[1:])
    counts = [len(each) for each in rounds]
    shift, of_single = (f"{median(each) - 1:+.1%}" for each in (differences, alone))
    told = _spread(differences), shift, _spread(halves), of_single, firm, differ, surely
    return table_row(name, len(lines), f"{min(counts)}-{max(counts)}", *told)


def _spread(ratios):
    """Return how far ratios are from 1: the median and nine in ten."""
    return " / ".join(spread([abs(each - 1) for each in ratios])) if ratios else "none"


def _median_ratio(rounds):
    return median(split / alone for alone, split in rounds)


def _ratios(line, which="mean_ns"):
    """Return the ratios of each run of a split to each of the single device: 11, 12, 21, 22."""
    split, alone = ([run[which] for run in line[f"{of}_runs"]] for of in ("split", "single"))
    return [ours / theirs for ours in split for theirs in alone]


def _ratio(line, which="mean_ns"):
    """Return the ratio of both runs together; a drift that is even falls out."""
    first, *_, last = _ratios(line, which)
    return sqrt(first * last)


if __name__ == "__main__":
    preload()
    run_campaign("rounds_and_training", list(map(str, SEEDS)), examine, table)
