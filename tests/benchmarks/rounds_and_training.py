"""Holds ratios from timing rounds against those of training: thousands of steps in a row.

    PYTHONPATH=tests python tests/benchmarks/rounds_and_training.py FILE --fresh 12
    PYTHONPATH=tests python tests/benchmarks/rounds_and_training.py FILE --summary

For each random model an analysis runs up to its profiles: its candidates, its rounds, the user's
own step beside them. Where it would profile, the same candidates are timed in rounds once more, and
in rounds of longer turns, by the same rule of when to stop. Then each split runs for a while, in
the order single, split, split, single. Of the splits of a model the fastest five run so.

A line of JSON for each seed before it is looked at, with the machine, and for each split of its
model once all have run. A run that was cut short goes on with the seed that is not done; a model
without a split has a line that says why, and another takes its place.
"""

import argparse
import secrets
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from math import sqrt
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace

import numpy as np
from machine_facts import machine_facts
from random_models import random_model
from result_lines import add, lines_of

from placement_advisor import defaults
from placement_advisor.analysis.options import AnalyzeOptions
from placement_advisor.analysis.predictions import predict, propose_all
from placement_advisor.analysis.progress import AnalysisProgress, SilentListener
from placement_advisor.analysis.runs import (
    CandidateRuns,
    ReferenceTimings,
    candidates_to_run,
    refine,
)
from placement_advisor.analysis.step_costs import (
    costs_from_measured,
    make_testbed_session,
    measure_costs_of_step,
)
from placement_advisor.analysis.tracing import (
    AnalysisRequest,
    load_model,
    split_batch,
    trace_loaded,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import Verdict, compare, least_samples, paired_ratios
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress, time_in_rounds
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import NS_PER_S

_SEEDS = 10**6
_SPLITS = 5
# The rounds of an analysis, and the same once more: that they differ is noise, or as-is beside.
ANALYSIS, AGAIN = "as analyzed", "again"
# Steps that are counted in a turn.
_LONGER_STEPS = (80,)


class _NotProfiledError(Exception):
    """Ends an analysis whose rounds are done: all else has been seen to."""


def examined(seed, seconds):
    """Return the lines of a model, its splits run for so long.

    Raises:
        AdvisorError: it cannot be analysed.
    """
    lines = []
    model = random_model(seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / f"random_{seed}.py"
        path.write_text(model.text)
        bundle, scratch = Path(folder) / "bundle", Path(folder) / "scratch"
        bundle.mkdir()
        scratch.mkdir()
        source = ModelSource(path=str(path), mode="train" if model.training else "infer")
        options = AnalyzeOptions(
            source=source, testbed=TestbedKind.WORKERS, output=Path(folder) / "out"
        )
        course = AnalysisProgress(SilentListener(), options)
        loader = stack.enter_context(Child("loader"))
        load_model(options.source, loader, course.watcher)
        traced = trace_loaded(options.source, bundle, loader, course.watcher)
        plan = plan_testbed(options.testbed, options.devices)
        splits = split_batch(options, options.devices, traced, bundle, loader, course.watcher)
        subject = AnalysisRequest(
            options=options, plan=plan, traced=traced, splits=splits, growth=None
        )
        apparatus = make_testbed_session(subject, loader, bundle, scratch, course.watcher, None)
        stack.callback(apparatus.close)
        measured = measure_costs_of_step(subject, apparatus, course)
        costs = costs_from_measured(subject, measured)
        proposed = propose_all(subject.graph, costs, options.families, options.effort)
        forecast = predict(proposed)

        def look(results):
            nonlocal forecast
            refined = refine(forecast, results, options.effort)
            forecast = refined.predictions if refined else forecast
            return refined and refined.placement

        def show(doing, results):
            if doing == "profiling":
                lines.extend(_trained(seed, seconds, apparatus, forecast))
                raise _NotProfiledError

        with suppress(_NotProfiledError):
            steering = SimpleNamespace(show=show, refine=look, advise=lambda _: [])
            runs = CandidateRuns(options, apparatus, course, steering, ReferenceTimings())
            runs.run(candidates_to_run(forecast, options), None, None)
    return lines or [{"model": seed, "why": "no split runs"}]


def _trained(seed, seconds, apparatus, forecast):
    """Time longer turns, then run the splits that were fastest; yield a line for each."""
    entries = {each.placement.label: each for each in apparatus.trial.running() if any(each.rounds)}
    if defaults.BASELINE not in entries:
        yield {"model": seed, "why": "the single device failed"}
        return
    among = apparatus.trial.competitors
    turns = {ANALYSIS: {label: entry.rounds for label, entry in entries.items()}}
    turns |= _in_longer_turns(apparatus, entries)
    alone = entries[defaults.BASELINE]

    def ratio(label):
        return median(paired_ratios(alone.rounds, entries[label].rounds) or [1.0])

    for label in sorted(entries.keys() - {defaults.BASELINE}, key=ratio)[:_SPLITS]:
        training = _abba(alone, entries[label], seconds)
        predicted = forecast.predicted[label].ratio
        rounds = {name: _medians(of[defaults.BASELINE], of[label]) for name, of in turns.items()}
        line = {"model": seed, "split": label, "among": among, "rounds": rounds, **training}
        yield line | {"predicted": predicted and predicted.ratio}


def _in_longer_turns(apparatus, entries):
    """Return the rounds of each candidate, by how long turns are.

    Those are missing that would not have an interval within the time of an analysis.
    """
    steps_s = sum(median(chain(*entry.rounds)) for entry in entries.values()) / NS_PER_S
    lengths = {AGAIN: defaults.STEPS} | {f"{steps} steps": steps for steps in _LONGER_STEPS}
    found = {}
    for name, steps in lengths.items():
        trial = Benchmark(apparatus.testbed, steps=steps, watcher=SilentProgress())
        trial.entries |= {label: replace(each, rounds=[]) for label, each in entries.items()}
        rounds_s = least_samples(trial.competitors) * (1 + steps) * steps_s
        if name == AGAIN or rounds_s <= defaults.TIMING_BUDGET_S:
            time_in_rounds(trial, None, lambda _: None)
            found[name] = {label: each.rounds for label, each in trial.entries.items()}
    return found


def _medians(alone, split):
    """Return the median step of both in each round that both have, in ns."""
    return [
        (round(median(theirs)), round(median(ours)))
        for theirs, ours in zip(alone, split, strict=False)
        if theirs and ours
    ]


def _abba(alone, split, seconds):
    """Return what runs of so many seconds took, of the single device and of a split."""
    runs = {"single_runs": [], "split_runs": []}
    order = (("single_runs", alone), ("split_runs", split))
    for batch, pair in enumerate((order, order[::-1])):
        for name, entry in pair:
            steps_of = seconds * NS_PER_S / median(chain(*entry.rounds))
            steps = max(defaults.STEPS, round(steps_of))
            answer = entry.bench.run_steps(entry.placement.label, batch, 1 + steps)
            if isinstance(answer, CallFailure):
                return {"failure": answer.message}
            counted = answer[1:]
            took = {"mean_ns": round(mean(counted)), "median_ns": round(median(counted))}
            runs[name].append({"steps": steps, **took})
    return runs


def summary(lines):
    """Return as Markdown how far ratios from rounds are from those of runs in a row."""
    trained = [line for line in lines if "single_runs" in line]
    models = len({line["model"] for line in trained})
    rows = [
        f"{len(trained)} splits of {models} models; each difference: median / 90th percentile",
        "",
        "| turns | splits | rounds | rounds over runs | of that a shift | even over odd rounds | "
        "`single` over its runs | firm verdicts | differ | surely |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys(name for line in trained for name in line["rounds"])
    rows += [_row(name, [line for line in trained if name in line["rounds"]]) for name in names]
    pairs = [_ratios(line) for line in trained]
    alone = [[run["mean_ns"] for run in line["single_runs"]] for line in trained]
    by_median = [_ratio(line, "median_ns") / _ratio(line) for line in trained]
    foretold = [line for line in trained if line["predicted"] is not None]
    over_rounds = [line["predicted"] / _over(line, ANALYSIS) for line in foretold]
    over_runs = [line["predicted"] / _ratio(line) for line in foretold]
    rows += [
        "",
        f"Runs: the first pair over the second {_spread([each[0] / each[3] for each in pairs])}, "
        f"the first run of `single` over the second {_spread([a / b for a, b in alone])}; ratios "
        f"of their medians over those of their means {_spread(by_median)}.",
        f"Predictions over rounds as analyzed {_spread(over_rounds)}, "
        f"over runs {_spread(over_runs)}.",
    ]
    return "\n".join(rows)


def _row(name, lines):
    rounds = [line["rounds"][name] for line in lines]
    differences = [_over(line, name) / _ratio(line) for line in lines]
    halves = [_median_ratio(each[::2]) / _median_ratio(each[1::2]) for each in rounds]
    alone = [
        median(ns for ns, _ in each) / mean(run["mean_ns"] for run in line["single_runs"])
        for each, line in zip(rounds, lines, strict=True)
    ]
    firm, differ, surely = 0, 0, 0
    for line in lines:
        verdict = _verdict(line, name)
        if verdict is not Verdict.INCONCLUSIVE:
            firm += 1
            denied = [
                (verdict is Verdict.FASTER) != (ratio < defaults.WORTHWHILE_RATIO)
                for ratio in (_ratio(line), *_ratios(line))
            ]
            differ, surely = differ + denied[0], surely + all(denied[1:])
    counts = [len(each) for each in rounds]
    return (
        f"| {name} | {len(lines)} | {min(counts)}-{max(counts)} | {_spread(differences)} "
        f"| {median(differences) - 1:+.1%} | {_spread(halves)} | {median(alone) - 1:+.1%} "
        f"| {firm} | {differ} | {surely} |"
    )


def _spread(ratios):
    """Return how far ratios are from 1: the median and nine in ten."""
    off = [abs(each - 1) for each in ratios]
    if not off:
        return "none"
    return f"{median(off):.1%} / {np.quantile(off, 0.9):.1%}"


def _verdict(line, name):
    """Return what an analysis concludes of the rounds."""
    alone, split = ([(pair[i],) for pair in line["rounds"][name]] for i in (0, 1))
    found = compare(defaults.BASELINE, alone, split, among=line["among"])
    return Verdict.INCONCLUSIVE if found is None else found.verdict


def _over(line, name):
    return _median_ratio(line["rounds"][name])


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


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="results, a line of JSON for each split")
    parser.add_argument("--fresh", type=int, default=0, help="random models, drawn where missing")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run (30)")
    parser.add_argument("--minutes", type=float, default=55.0, help="begin none after so many (55)")
    parser.add_argument("--summary", action="store_true", help="say what the file comes to")
    asked = parser.parse_args()
    if asked.summary:
        print(summary(lines_of(asked.file)))
        return
    deadline = time.monotonic() + 60 * asked.minutes
    preload()
    while time.monotonic() < deadline:
        lines = lines_of(asked.file)
        done = {line.get("model") for line in lines}
        left = [line["seed"] for line in lines if "seed" in line and line["seed"] not in done]
        if not left and len({line["model"] for line in lines if "split" in line}) >= asked.fresh:
            return
        if not left:
            add(asked.file, {"seed": secrets.randbelow(_SEEDS), **machine_facts()})
            continue
        try:
            found = examined(left[0], asked.seconds)
        except AdvisorError as error:
            found = [{"model": left[0], "why": error.message}]
        for line in found:
            add(asked.file, line)


if __name__ == "__main__":
    main()
