"""Holds ratios from timing rounds against those of training: thousands of steps in a row.

    PYTHONPATH=tests python tests/benchmarks/rounds_and_training.py FILE --fresh 12
    PYTHONPATH=tests python tests/benchmarks/rounds_and_training.py FILE --summary

For each random model an analysis runs up to its profiles: its candidates, its rounds, the user's
own step beside them. Where it would profile, the same candidates are timed in rounds once more, and
in rounds of longer turns, by the same rule of when to stop. Then each split runs for a while, in
the order single, split, split, single. Of the splits of a model the fastest five run so.

A line of JSON for each split, as soon as it is known; a line says which seeds were drawn, on which
machine. A run that was cut short goes on: splits that are in the file are left out, `--fresh` draws
only what is missing. A model without a split has a line that says why, and another takes its place.
"""

import argparse
import json
import secrets
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import mean, median, quantiles
from types import SimpleNamespace

from machine_facts import machine_facts
from random_models import random_model

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
_TENTHS = 10


class _NotProfiledError(Exception):
    """Ends an analysis whose rounds are done: all else has been seen to."""


@dataclass(slots=True)
class Kept:
    """The file of results."""

    path: Path

    def add(self, line):
        """Write a line."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print({name: line[name] for name in ("seeds", "model", "split", "why") if name in line})

    def lines(self):
        """Return all lines."""
        return [json.loads(each) for each in self.path.read_text().splitlines()]

    def splits(self, seed):
        """Return those of the splits of a model."""
        return [line for line in self.lines() if line.get("model") == seed and "split" in line]

    def left(self):
        """Return the seeds drawn of which something is left to do."""
        lines = self.lines()
        ended = {line["model"] for line in lines if line.get("why") is not None}
        return [seed for line in lines for seed in line.get("seeds", ()) if seed not in ended]


def examine(seed, seconds, kept, deadline):
    """Run a model's splits of which nothing is kept, until the deadline (`time.monotonic`).

    Raises:
        AdvisorError: it cannot be analysed.
    """
    model = random_model(seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / f"random_{seed}.py"
        path.write_text(model.text)
        bundle, scratch = Path(folder) / "bundle", Path(folder) / "scratch"
        bundle.mkdir()
        scratch.mkdir()
        options = usual_options(path, "train" if model.training else "infer")
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
        forecast = predict(
            propose_all(
                subject.graph,
                costs_from_measured(subject, measure_costs_of_step(subject, apparatus, course)),
                options.families,
                options.effort,
            )
        )

        def look(results):
            nonlocal forecast
            refined = refine(forecast, results, options.effort)
            if refined is None:
                return None
            forecast = refined.predictions
            return refined.placement

        def show(doing, results):
            if doing == "profiling":
                _train(seed, seconds, apparatus, forecast, kept, deadline)
                raise _NotProfiledError

        with suppress(_NotProfiledError):
            steering = SimpleNamespace(show=show, refine=look, advise=lambda _: [])
            runs = CandidateRuns(options, apparatus, course, steering, ReferenceTimings())
            runs.run(candidates_to_run(forecast, options), None, None)


def usual_options(path, mode):
    """Return those of `advisor analyze` without an option, but for where it runs."""
    return AnalyzeOptions(
        source=ModelSource(
            path=str(path),
            name=None,
            mode=mode,
            batch_size=None,
            outputs=None,
            time_limit_s=defaults.TIME_LIMIT_S,
        ),
        testbed=TestbedKind.WORKERS,
        output=path.parent / "out",
    )


def _train(seed, seconds, apparatus, forecast, kept, deadline):
    """Time longer turns, then run each split whose line is missing."""
    entries = {each.placement.label: each for each in apparatus.trial.running() if any(each.rounds)}
    if defaults.BASELINE not in entries:
        kept.add({"model": seed, "why": "the single device failed"})
        return
    among = apparatus.trial.competitors
    turns = {ANALYSIS: {label: entry.rounds for label, entry in entries.items()}}
    turns |= _in_longer_turns(apparatus, entries)
    alone = entries[defaults.BASELINE]
    done = {line["split"] for line in kept.splits(seed)}

    def ratio(label):
        return median(paired_ratios(alone.rounds, entries[label].rounds) or [1.0])

    missing = entries.keys() - {defaults.BASELINE} - done
    for label in sorted(missing, key=ratio)[: _SPLITS - len(done)]:
        if time.monotonic() + 4 * seconds > deadline:
            return
        training = _abba(alone, entries[label], seconds)
        predicted = forecast.predicted[label].ratio
        kept.add(
            {
                "model": seed,
                "split": label,
                "among": among,
                "predicted": None if predicted is None else predicted.ratio,
                "rounds": {
                    name: _medians(rounds[defaults.BASELINE], rounds[label])
                    for name, rounds in turns.items()
                },
                **training,
            }
        )
    why = None if len(entries) > 1 else "no split runs"
    kept.add({"model": seed, "why": why or f"all {len(kept.splits(seed))} splits have run"})


def _in_longer_turns(apparatus, entries):
    """Return the rounds of each candidate, by how long turns are.

    Those are missing that would not have an interval within the time of an analysis.
    """
    step_s = {
        label: median(ns for turn in entry.rounds for ns in turn) / NS_PER_S
        for label, entry in entries.items()
    }
    lengths = {AGAIN: defaults.STEPS} | {f"{steps} steps": steps for steps in _LONGER_STEPS}
    found = {}
    for name, steps in lengths.items():
        trial = Benchmark(apparatus.testbed, steps=steps, watcher=SilentProgress())
        trial.entries |= {label: replace(each, rounds=[]) for label, each in entries.items()}
        rounds_s = least_samples(trial.competitors) * (1 + steps) * sum(step_s.values())
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
            step_ns = median(ns for turn in entry.rounds for ns in turn)
            steps = max(defaults.STEPS, round(seconds * NS_PER_S / step_ns))
            answer = entry.bench.run_steps(entry.placement.label, batch, 1 + steps)
            if isinstance(answer, CallFailure):
                return {"failure": answer.message}
            counted = answer[1:]
            quarters = [counted[i * steps // 4 : (i + 1) * steps // 4] for i in range(4)]
            runs[name].append(
                {
                    "steps": steps,
                    "mean_ns": round(mean(counted)),
                    "median_ns": round(median(counted)),
                    "quarters_ns": [round(median(each)) for each in quarters],
                }
            )
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
    differences = [_over(line, name) / _ratio(line) for line in lines]
    halves = [
        _median_ratio(line["rounds"][name][::2]) / _median_ratio(line["rounds"][name][1::2])
        for line in lines
    ]
    alone = [
        median(ns for ns, _ in line["rounds"][name])
        / mean(run["mean_ns"] for run in line["single_runs"])
        for line in lines
    ]
    firm, differ, surely = 0, 0, 0
    for line in lines:
        verdict = _verdict(line, name)
        if verdict is Verdict.INCONCLUSIVE:
            continue
        firm += 1
        is_faster = verdict is Verdict.FASTER
        differ += is_faster != (_ratio(line) < defaults.WORTHWHILE_RATIO)
        surely += all(is_faster != (each < defaults.WORTHWHILE_RATIO) for each in _ratios(line))
    rounds = [len(line["rounds"][name]) for line in lines]
    return (
        f"| {name} | {len(lines)} | {min(rounds)}-{max(rounds)} | {_spread(differences)} "
        f"| {median(differences) - 1:+.1%} | {_spread(halves)} | {median(alone) - 1:+.1%} "
        f"| {firm} | {differ} | {surely} |"
    )


def _spread(ratios):
    """Return how far ratios are from 1: the median and nine in ten."""
    off = [abs(each - 1) for each in ratios]
    if not off:
        return "none"
    most = quantiles(off, n=_TENTHS, method="inclusive")[-1] if len(off) > 1 else off[0]
    return f"{median(off):.1%} / {most:.1%}"


def _verdict(line, name):
    """Return what an analysis concludes of the rounds."""
    alone, split = ([(pair[i],) for pair in line["rounds"][name]] for i in (0, 1))
    found = compare(defaults.BASELINE, alone, split, among=line["among"])
    return Verdict.INCONCLUSIVE if found is None else found.verdict


def _over(line, name):
    return _median_ratio(line["rounds"][name])


def _median_ratio(rounds):
    return median(split / alone for alone, split in rounds)


def _step(line, of, number, which="mean_ns"):
    return float(line[of][number][which])


def _ratios(line):
    """Return the ratios of each run of a split to each of the single device: 11, 12, 21, 22."""
    return [
        _step(line, "split_runs", i) / _step(line, "single_runs", j) for i in (0, 1) for j in (0, 1)
    ]


def _ratio(line, which="mean_ns"):
    """Return the ratio of both runs together; a drift that is even falls out."""
    first, second = (
        _step(line, "split_runs", i, which) / _step(line, "single_runs", i, which) for i in (0, 1)
    )
    return sqrt(first * second)


def main():
    """Examine models, or say what has come of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="results, a line of JSON for each split")
    parser.add_argument("--fresh", type=int, default=0, help="random models, drawn where missing")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run (30)")
    parser.add_argument("--minutes", type=float, default=55.0, help="stop after that many (55)")
    parser.add_argument("--summary", action="store_true", help="say what the file comes to")
    asked = parser.parse_args()
    kept = Kept(asked.file)
    if asked.summary:
        print(summary(kept.lines()))
        return
    deadline = time.monotonic() + 60 * asked.minutes
    asked.file.touch()
    preload()
    _go_on(kept, asked.fresh, lambda seed: examine(seed, asked.seconds, kept, deadline), deadline)


def _go_on(kept, wanted, look, deadline):
    """Examine what was drawn and is not done; draw until so many models have had splits."""
    while time.monotonic() < deadline:
        left = kept.left()
        trained = {line["model"] for line in kept.lines() if "split" in line}
        missing = wanted - len(trained.union(left))
        if not left and missing <= 0:
            return
        if not left:
            seeds = [secrets.randbelow(_SEEDS) for _ in range(missing)]
            kept.add({"seeds": seeds, **machine_facts()})
            continue
        try:
            look(left[0])
        except AdvisorError as error:
            kept.add({"model": left[0], "why": error.message})
        if left[0] in kept.left():  # There was not the time for all of its splits.
            return


if __name__ == "__main__":
    main()
