"""Advice that is followed: does each finding save what it said, within the range that it said?

A case is a random model that trains. It is analysed as by `advisor analyze`, on workers, up to its
findings; then what they advise is done and timed:

- Moves in a split (PA101, PA103, PA201, PA202, PA203). As random models have no `tf.device`, scopes
  are drawn, as often with gradients outside of them, or variables. The split that they make is
  timed with what would be moved in it, as in an analysis. What is then told runs once more: the
  split beside the one with the first move, with the first and the second, and so on, or beside one
  device where the finding says to give the split up: in rounds, on the workers.
- PA302: the file with the batch that is advised, in a process of its own beside the one with its
  own batch; on a worker where the finding knows of no other batch that ran.
- PA307: the file with `LazyAdam` of its page, where it has Keras' Adam, on a worker.
- PA308: `fit` with so many steps for each call, in a process of its own.

All of that is executed. Findings whose advice nobody can follow here say why.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from statistics import median, quantiles, stdev
from typing import TYPE_CHECKING, Any

from campaign import run_campaign
from random_models import random_model
from rounds_and_training import usual_options
from table_updates import LAZY_ADAM

from placement_advisor import defaults
from placement_advisor.analysis.assemble import candidates_of
from placement_advisor.analysis.findings.evidence import (
    YOUR_SPLIT,
    Evidence,
    SplitMove,
    apply_move,
    layer_ops,
    with_variables,
)
from placement_advisor.analysis.findings.rules import find_all, placements_to_time
from placement_advisor.analysis.findings.scope_rules import (
    BACKWARD_ACTION,
    backward_ops_left_behind,
)
from placement_advisor.analysis.predictions import predict, propose_all
from placement_advisor.analysis.progress import AnalysisProgress, SilentListener
from placement_advisor.analysis.runs import (
    ADVICE_BUDGET_S,
    CandidateRuns,
    ReferenceTimings,
    RunResults,
)
from placement_advisor.analysis.step_costs import (
    costs_from_measured,
    make_testbed_session,
    measure_costs_of_step,
)
from placement_advisor.analysis.tracing import (
    AnalysisRequest,
    growth_of,
    load_model,
    trace_loaded,
    traced_model,
)
from placement_advisor.candidates import references
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Role
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import median_interval
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.step_growth import GrowingStep
from placement_advisor.testbed.benchmark import SilentProgress
from placement_advisor.testbed.user_step import loop_timing
from placement_advisor.tf.calls import as_is

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Finding
    from placement_advisor.analysis.predictions import Predictions
    from placement_advisor.analysis.step_costs import TestbedSession
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# Drawn when rules and ranges did not change any more.
FIRST_SEED = 840245
_MODELS = 40
_DRAWINGS = 4
# As many rounds as that for what came, but no longer.
_ROUNDS, _ROUNDS_S = 40, 60.0
_STEPS = 5
_OF_A_SPLIT = ("PA101", "PA103", "PA201", "PA202", "PA203")
_PUT = re.compile(
    r"put (?P<kind>layer|op|variable) (?P<name>.+?)(?P<more> and \d+ more)?"
    r"(?: with its gradients and variables)? on (?P<device>\S+)"
)


def cases() -> list[str]:
    """Return a case for each model."""
    return [f"seed-{FIRST_SEED + number}" for number in range(_MODELS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Analysed:
    """A model whose findings are known but for its splits, and what it runs on."""

    path: Path
    text: str
    subject: AnalysisRequest
    apparatus: TestbedSession
    forecast: Predictions
    results: RunResults

    def evidence(self, requested_device_of: Mapping[str, str]) -> Evidence:
        """Return what rules look at, were these scopes in the user's program."""
        traced, prices = self.subject.traced, self.forecast.proposals.prices
        growing = self.subject.growing(prices)
        return Evidence(
            graph=self.subject.graph,
            cluster=prices.cluster,
            costs=prices.costs,
            simulator=self.forecast.proposals.simulator,
            candidates=candidates_of(self.forecast, self.results),
            requested_device_of=requested_device_of,
            batch_size=traced.batch_size,
            batch_points=self.results.batch_points,
            loop_timing=self.results.loop_timing,
            input_timing=self.results.input_timing,
            growing=growing if isinstance(growing, GrowingStep) else None,
            takes_batch_size=traced.takes_batch_size,
            left_out=traced.left_out,
            doubt=prices.doubt,
        )


class _ProfilingError(Exception):
    """Ends the analysis before its profiles, which no finding rests on."""


class _NoCandidates:
    """Runs nothing beside the single device; ``last`` is what it has shown."""

    def __init__(self) -> None:
        self.last = RunResults()

    def show(self, doing: str, results: RunResults) -> None:
        if doing == "profiling":
            self.last = results
            raise _ProfilingError

    def refine(self, results: RunResults) -> None:
        return None

    def advise(self, results: RunResults) -> list[Placement]:
        return []


def examine(case: str) -> dict[str, Any]:
    """Return what each finding of a model said that it saves, and what came of it."""
    seed = int(case.rpartition("-")[2])
    text = random_model(seed, needs={"training"}).text
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / f"random_{seed}.py"
        path.write_text(text)
        preload()
        try:
            model = analysed(path, text, stack)
            alone = [finding for finding in find_all(model.evidence({})) if finding.saving]
            found = [_followed_alone(model, finding) for finding in alone]
            found += _followed_in_splits(model, random.Random(seed))
        except AdvisorError as error:
            return {"why": error.message, "findings": []}
    return {"findings": found}


def analysed(path: Path, text: str, stack: ExitStack) -> _Analysed:
    options = usual_options(path, "train")
    course = AnalysisProgress(SilentListener(), options)
    bundle, scratch = path.parent / "bundle", path.parent / "scratch"
    bundle.mkdir()
    scratch.mkdir()
    loader = stack.enter_context(Child("loader"))
    load_model(options.source, loader, course.watcher)
    traced = trace_loaded(options.source, bundle, loader, course.watcher)
    growth = growth_of(loader, traced, options.source.time_limit_s)
    plan = plan_testbed(TestbedKind.WORKERS, defaults.DEVICES)
    subject = AnalysisRequest(options=options, plan=plan, traced=traced, splits={}, growth=growth)
    apparatus = make_testbed_session(subject, loader, bundle, scratch, course.watcher, None)
    stack.callback(apparatus.close)
    priced = costs_from_measured(subject, measure_costs_of_step(subject, apparatus, course))
    forecast = predict(propose_all(subject.graph, priced, (defaults.BASELINE,), options.effort))
    steering = _NoCandidates()
    runs = CandidateRuns(options, apparatus, course, steering, ReferenceTimings())
    with suppress(_ProfilingError):
        runs.run((), None, subject.growing(priced.prices))
    return _Analysed(
        path=path,
        text=text,
        subject=subject,
        apparatus=apparatus,
        forecast=forecast,
        results=steering.last,
    )


def _followed_in_splits(model: _Analysed, draw: random.Random) -> list[dict[str, Any]]:
    """Draw scopes, and run the splits that they make beside what is advised of them."""
    trial, graph = model.apparatus.trial, model.subject.graph
    device = model.subject.plan.devices[0].name
    pairs: list[tuple[Finding, str, str]] = []
    found: list[dict[str, Any]] = []
    for number in range(_DRAWINGS):
        asked = drawn_scopes(graph, draw)
        evidence = model.evidence(asked)
        own = next((split for split in evidence.splits if split.name == YOUR_SPLIT), None)
        if own is None:
            continue
        timed = trial.time_apart(placements_to_time(evidence), ADVICE_BUDGET_S)
        evidence = replace(evidence, timed=timed)
        before = replace(own.placement, label=f"own-{number}")
        told = [f for f in find_all(evidence) if f.code in _OF_A_SPLIT and f.saving]
        for i, finding in enumerate(told):
            after = _moved_as_told(graph, asked, before, finding)
            if finding.action.startswith(f"give {YOUR_SPLIT} up"):
                after = references.on_device(graph, device)
            if after is None:
                found.append(_said(finding) | {"why": f"not understood: {finding.action}"})
                break
            label = defaults.BASELINE if after.family == defaults.BASELINE else f"own-{number}-{i}"
            after = replace(after, label=label)
            for placement in (before, after):
                if placement.label not in trial.entries:
                    trial.enter(placement)
            pairs.append((finding, before.label, after.label))
            before = after
    deadline = time.monotonic() + _ROUNDS_S
    for number in range(trial.rounds, trial.rounds + _ROUNDS if pairs else trial.rounds):
        trial.round(number, number + 1)
        if time.monotonic() > deadline:
            break
    for finding, *labels in pairs:
        entries = [trial.entries[label] for label in labels]
        failed = next((each.failure for each in entries if each.failure is not None), None)
        if failed is not None:
            found.append(_said(finding) | {"why": failed.message})
            continue
        turns = zip(*(each.rounds for each in entries), strict=False)
        medians = [(median(a), median(b)) for a, b in turns if a and b]
        found.append(_said(finding) | _came(medians))
    return found


def drawn_scopes(graph: OpGraph, draw: random.Random) -> dict[str, str]:
    """Return the devices that ops ask for in a split that somebody may have written."""
    layers = list(dict.fromkeys(op.layer for op in graph.ops if op.layer is not None))
    cut = draw.randrange(1, len(layers)) if len(layers) > 1 else 0
    way = draw.choice(("cut", "in turns", "at random"))
    device_of = {
        layer: "CPU:{}".format(
            {"cut": int(i >= cut), "in turns": i % 2, "at random": draw.randrange(2)}[way]
        )
        for i, layer in enumerate(layers)
    }
    roles = {Role.FORWARD}
    if draw.random() < 1 / 2:
        roles.add(Role.BACKWARD)
    if draw.random() < 2 / 3:
        roles.add(Role.VARIABLE)
    return {
        op.name: device_of[op.layer]
        for op in graph.ops
        if op.layer is not None and op.role in roles
    }


def _moved_as_told(
    graph: OpGraph, asked: Mapping[str, str], placement: Placement, finding: Finding
) -> Placement | None:
    """Return the placement that somebody makes who reads what to do; None if it says no move."""
    if BACKWARD_ACTION in finding.action:
        ops = [op for each in backward_ops_left_behind(graph, asked).values() for op in each]
        return apply_move(
            graph, placement, SplitMove(finding.action, finding.where, gradients=tuple(ops))
        )
    put = _PUT.search(finding.action)
    if put is None:
        return None
    name, device = put["name"], put["device"]
    match put["kind"]:
        case "variable":
            ops = [op.name for op in graph.ops if op.variable == name]
        case "layer":
            ops = [op for layer in name.split(", ") for op in layer_ops(graph, layer)]
        case _:
            ops = [name] if put["more"] is None else list(_readers(graph, placement, finding))
    there = with_variables(graph, ops, device)
    return apply_move(graph, placement, SplitMove(finding.action, finding.where, there))


def _readers(graph: OpGraph, placement: Placement, finding: Finding) -> Iterator[str]:
    """Yield the ops that read the finding's tensor on its device."""
    producer, _, port = str(finding.where["tensor"]).rpartition(":")
    for edge in graph.outputs_of(producer):
        on = placement.device_of.get(edge.consumer)
        if str(edge.port) == port and on == finding.where["device"]:
            yield edge.consumer


def _followed_alone(model: _Analysed, finding: Finding) -> dict[str, Any]:
    """Follow what is advised of the step on one device."""
    found = _said(finding)
    batch = model.subject.traced.batch_size
    advised = re.search(r"take a batch of ([\d,]+)", finding.action)
    if finding.code == "PA302" and advised is not None and batch is not None:
        larger = int(advised[1].replace(",", ""))
        text = re.sub(r"(?m)^BATCH_SIZE = \d+$", f"BATCH_SIZE = {larger}", model.text)
        times = _as_is if model.results.batch_points else _on_worker
        turns = times(model, text)
        return found | _came([(now, then * batch / larger) for now, then in turns])
    if finding.code == "PA308":
        return found | _came(_in_fit(model))
    if finding.code == "PA307" and "keras.optimizers.Adam(" in model.text:
        text = model.text.replace("import keras\n", f"{LAZY_ADAM}\n", 1)
        text = text.replace("keras.optimizers.Adam(", "LazyAdam(")
        text = text.replace("keras.layers.Embedding(", "RowEmbedding(")
        return found | _came(_on_worker(model, text))
    return found | {"why": "nothing in this folder follows it"}


def _as_is(model: _Analysed, text: str) -> list[tuple[float, float]]:
    """Run the model beside another file in processes of their own; return steps by turn."""
    with ExitStack() as stack:
        children = []
        for path in (model.path, _written(model, text)):
            child = stack.enter_context(Child("loader"))
            load_model(usual_options(path, "train").source, child, SilentProgress())
            children.append(child)
        calls = [
            lambda n, child=child: child.call(as_is.run_as_is, n, 1 + _STEPS, time_limit_s=120)
            for child in children
        ]
        return _in_turns(calls)


def _on_worker(model: _Analysed, text: str) -> list[tuple[float, float]]:
    """Run the model on a worker beside another file; return steps by turn."""
    path, testbed = _written(model, text), model.apparatus.testbed
    bundle = path.parent / path.stem
    bundle.mkdir()
    with Child("loader") as child:
        source = usual_options(path, "train").source
        traced = traced_model(source, bundle, child, SilentProgress())
    device_of = references.on_device(traced.graph, model.subject.plan.devices[0].name).device_of
    testbed.add_program(path.stem, bundle, traced.graph)
    answer = testbed.prepare(path.stem, device_of, path.stem)
    if isinstance(answer, CallFailure):
        raise AdvisorError(answer.message)
    return _in_turns(
        [
            lambda n, label=label: testbed.run_steps(label, n, 1 + _STEPS)
            for label in (defaults.BASELINE, path.stem)
        ]
    )


def _in_turns(calls: Sequence[Callable[[int], list[int] | CallFailure]]) -> list[tuple[float, ...]]:
    """Return the median step of both in each turn, the first of which is left out."""
    found = []
    for number in range(1 + _ROUNDS):
        medians = {}
        order = (0, 1) if number % 2 else (1, 0)
        for i in order:
            steps = calls[i](number)
            if isinstance(steps, CallFailure):
                raise AdvisorError(steps.message)
            medians[i] = median(steps[1:])
        found.append((medians[0], medians[1]))
    return found[1:]


def _in_fit(model: _Analysed) -> list[tuple[float, float]]:
    with Child("loader") as child:
        load_model(usual_options(model.path, "train").source, child, SilentProgress())
        steps = child.call(as_is.run_as_is, 0, _STEPS, time_limit_s=120)
        timing = None if isinstance(steps, CallFailure) else loop_timing(child, steps)
    if timing is None:
        raise AdvisorError("fit was not timed again")
    return list(zip(timing.one_ns, timing.several_ns, strict=True))


def _written(model: _Analysed, text: str) -> Path:
    path = model.path.with_name(f"followed_{len(list(model.path.parent.glob('followed_*.py')))}.py")
    path.write_text(text)
    return path


def _said(finding: Finding) -> dict[str, Any]:
    saving = finding.saving
    assert saving is not None
    return {
        "code": finding.code,
        "action": finding.action,
        "basis": saving.basis,
        "said_of_ns": saving.step_ns,
        "said_ns": [saving.low_ns, saving.saving_ns, saving.high_ns],
    }


def _came(turns: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return what came of it: the median over turns of the step before less the step after."""
    savings = [before - after for before, after in turns]
    interval = median_interval(savings)
    return {
        "step_ns": round(median(before for before, _ in turns)),
        "came_ns": round(median(savings)),
        "came_between_ns": None
        if interval is None
        else [round(interval.low), round(interval.high)],
    }


def table(results: list[dict[str, Any]]) -> str:
    """Return by rule what was said and what came."""
    findings = [finding for result in results for finding in result["findings"]]
    rows = [
        f"{len(findings)} findings with a saving in {len(results)} models.",
        "",
        "| rule | findings | followed | within its range | no saving | surely none | "
        "came over said | width over saving | width over step | within what is asked |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    codes = sorted({finding["code"] for finding in findings})
    rows += [_row(code, [f for f in findings if f["code"] == code]) for code in codes]
    rows.append(_row("all", findings))
    rows += ["", *_spreads(findings)]
    reasons = [f"- {f['code']}: {f['why']}" for f in findings if "why" in f]
    reasons += [f"- {result['case']}: {result['why']}" for result in results if "why" in result]
    return "\n".join([*rows, *(["", "Not followed:", "", *reasons] if reasons else [])])


def _spreads(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how far what came is off what was said, in milliseconds and as a share of the step.

    Of findings that saved something.
    """
    both = [f for f in findings if f.get("came_ns", 0) > 0]
    few = 2
    if len(both) < few:
        return []
    in_time = [f["came_ns"] / f["said_ns"][1] for f in both]
    as_share = [_share_that_came(f) / f["said_ns"][1] * f["said_of_ns"] for f in both]
    rows = [
        f"How far what came of {len(both)} is off what was said, in logarithms:",
        "",
        "| | standard deviation | nine in ten within |",
        "|---|---|---|",
    ]
    for name, ratios in (("in milliseconds", in_time), ("as a share of the step", as_share)):
        off = sorted(abs(log(ratio)) for ratio in ratios)
        rows.append(f"| {name} | {stdev(map(log, ratios)):.0%} | {quantiles(off, n=10)[-1]:.0%} |")
    return rows


def _share_that_came(finding: Mapping[str, Any]) -> float:
    """Return what came, as a share of the step that it was saved of."""
    return float(finding["came_ns"] / finding["step_ns"])


def _row(name: str, findings: Sequence[Mapping[str, Any]]) -> str:
    followed = [finding for finding in findings if "came_ns" in finding]
    if not followed:
        return f"| {name} | {len(findings)} | 0 | | | | | | | |"
    ends = [(f, [end / f["said_of_ns"] for end in f["said_ns"]]) for f in followed]
    within = sum(low <= _share_that_came(f) <= high for f, (low, _, high) in ends)
    none = sum(f["came_ns"] <= 0 for f in followed)
    surely = sum(bool(f["came_between_ns"]) and f["came_between_ns"][1] <= 0 for f in followed)
    of_saving = median((high - low) / share for _, (low, share, high) in ends)
    of_step = median(high - low for _, (low, _, high) in ends)
    # What is asked: a quarter of the saving or a twentieth of the step, whichever is wider.
    narrow = sum(high - low <= max(share / 4, 1 / 20) for _, (low, share, high) in ends)
    over = median(_share_that_came(f) / share for f, (_, share, _) in ends)
    return (
        f"| {name} | {len(findings)} | {len(followed)} | {within} ({within / len(followed):.0%}) | "
        f"{none} | {surely} | {over:.2f} | {of_saving:.0%} | {of_step:.0%} | {narrow} |"
    )


if __name__ == "__main__":
    run_campaign("followed_advice", cases(), examine, table)
