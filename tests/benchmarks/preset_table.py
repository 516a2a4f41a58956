"""What is predicted for samples and public models on presets of GPUs, to be read for absurdities.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/preset_table.py [--effort UNITS]
        [--presets A,B] [MODEL...]

A model is a sample, by default each of them, or one of `public_models.py`. It is traced once (with
SAMPLE_SIZE=full a sample at its published size), with its batch split for two devices, and priced
on two of each preset. A row has the predicted speed-up over one device by family, and the verdict;
below the table of a model stands what no owner of two GPUs would believe: a family best that is bad
on purpose, more than twice as fast on two devices, a split of the batch behind one that is bad on
purpose, a slower step over the faster of a preset's links.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from public_model_file import public_model_file

from placement_advisor import defaults
from placement_advisor.analysis.assemble import assemble, candidates_of
from placement_advisor.analysis.options import AnalyzeOptions, effort_of
from placement_advisor.analysis.predictions import bound_of, predict, propose_all
from placement_advisor.analysis.runs import RunResults
from placement_advisor.analysis.step_costs import assume_costs
from placement_advisor.analysis.target_costs import read_target_hardware
from placement_advisor.analysis.tracing import AnalysisRequest, split_batch, traced_model
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.families import NAMES, WORST_CASE_FAMILIES
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.benchmark import SilentProgress
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.predictions import Proposals

SAMPLES = Path(__file__).parents[2] / "sample_models"
DEVICES = 2
# A step is rounded to whole ns, and order among ops that are ready moves by chance.
SLACK = 1.02
STAGED = "-staged"
# Laid out by rule, so that they do not change with the costs of links.
SAME_ON_ALL_LINKS = (
    "towers",
    "towers-forward-only",
    "batch",
    "mirrored",
    *sorted(WORST_CASE_FAMILIES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A preset: predicted step times by candidate that fits, and what is told of them."""

    steps_ns: Mapping[str, int]
    verdict: str
    faster_links: Sequence[tuple[str, str]]

    def speedup(self, name: str) -> float:
        """Return the time of one device over that of a candidate."""
        return self.steps_ns[defaults.BASELINE] / self.steps_ns[name]

    def absurdities(self) -> Iterator[tuple[str, str]]:
        """Yield what nobody would believe, each with its figures."""
        yield from self.faster_links
        others = [name for name in self.steps_ns if name != defaults.BASELINE]
        if not others:
            return
        bad = [name for name in others if name in WORST_CASE_FAMILIES]
        good_speedup = max(self.speedup(name) for name in self.steps_ns if name not in bad)
        for name in bad:
            if self.speedup(name) > good_speedup * SLACK:
                yield f"{name} is best", f"{self.speedup(name):.2f} > {good_speedup:.2f}"
        for name in others:
            if self.speedup(name) > DEVICES * SLACK:
                yield f"{name} on {DEVICES} devices", f"{self.speedup(name):.2f}"
            is_ahead = BATCH in others and self.speedup(BATCH) * SLACK < self.speedup(name)
            if name in WORST_CASE_FAMILIES and is_ahead:
                figures = f"{self.speedup(BATCH):.2f} < {self.speedup(name):.2f}"
                yield f"{BATCH} behind {name}", figures


def main() -> None:
    """Print a table for each sample, and what is absurd in it."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("models", nargs="*")
    arguments.add_argument("--effort", type=float, default=0.2)
    arguments.add_argument("--presets", default=",".join(hardware_figures()["devices"]))
    asked = arguments.parse_args()
    preload()
    for model in asked.models or sorted(path.stem for path in SAMPLES.glob("*.py")):
        subject = traced(model, asked.effort)
        rows = {preset: row(subject, preset) for preset in asked.presets.split(",")}
        names = [name for name in NAMES if any(name in row.steps_ns for row in rows.values())]
        graph = subject.graph
        print(f"\n**{model}**, {len(graph)} ops, {graph.parameter_bytes / 1e6:.0f} MB of variables")
        print(f"\n| 2x | single ms | {' | '.join(names[1:])} | verdict |")
        print(f"|{'---|' * (len(names) + 2)}")
        for preset, each in rows.items():
            cells = [
                f"{each.speedup(name):.2f}" if name in each.steps_ns else "–" for name in names[1:]
            ]
            single_ms = each.steps_ns.get(defaults.BASELINE, 0) / 1e6
            print(f"| {preset} | {single_ms:.2f} | {' | '.join(cells)} | {each.verdict} |")
        print()
        by_kind: defaultdict[str, list[str]] = defaultdict(list)
        for preset, each in rows.items():
            for kind, figures in each.absurdities():
                by_kind[kind].append(f"{preset} {figures}")
        for kind, found in by_kind.items():
            print(f"- {kind}: {', '.join(found)}")
        print(end="", flush=True)


def traced(model: str, effort: float) -> AnalysisRequest:
    """Return a model, traced with its batch split."""
    if (SAMPLES / f"{model}.py").exists():
        return traced_file(SAMPLES / f"{model}.py", effort)
    with tempfile.TemporaryDirectory() as folder:
        return traced_file(public_model_file(model, Path(folder)), effort)


def traced_file(path: Path, effort: float) -> AnalysisRequest:
    """Return the model of a file, traced with its batch split."""
    source = ModelSource(
        path=str(path),
        name=None,
        mode=None,
        batch_size=None,
        outputs=(),
        time_limit_s=defaults.TIME_LIMIT_S,
    )
    options = AnalyzeOptions(
        source=source,
        devices=DEVICES,
        hardware="2xV100",
        costs=None,
        testbed=None,
        candidates=None,
        ratios=None,
        effort=effort_of(effort, 0, quick=False),
        steps=defaults.STEPS,
        rounds=None,
        refine=0,
        run=False,
        quick=False,
        open_ports=False,
        output=Path(),
    )
    watcher = SilentProgress()
    with Child("loader") as loader:
        model = traced_model(source, None, loader, watcher)
        splits = split_batch(options, DEVICES, model, None, loader, watcher)
    plan = read_target_hardware("2xV100", None).plan()
    return AnalysisRequest(options=options, plan=plan, traced=model, splits=splits)


def row(subject: AnalysisRequest, preset: str) -> Row:
    """Return what is predicted for two of a preset."""
    elsewhere = read_target_hardware(f"{DEVICES}x{preset}", None)
    priced = assume_costs(subject, elsewhere)
    proposals = propose_all(subject.graph, priced, NAMES, subject.options.effort)
    forecast = predict(proposals)
    candidates = candidates_of(forecast, RunResults())
    analysis = assemble(subject, forecast, RunResults(), candidates, bound_of(forecast), None, None)
    answer = analysis.recommendation
    told = answer.verdict.value
    if answer.candidate is not None:
        told += f" {answer.candidate}"
    return Row(
        steps_ns={
            name: each.schedule.step_ns
            for name, each in forecast.predicted.items()
            if each.too_large is None
        },
        verdict=told,
        faster_links=slower_over_faster_links(subject, preset),
    )


def slower_over_faster_links(subject: AnalysisRequest, preset: str) -> list[tuple[str, str]]:
    """Return which candidates take longer over a faster link of the preset's."""
    links, names = hardware_figures()["links"], hardware_figures()["devices"][preset]["links"]
    if any(name.endswith(STAGED) for name in names):
        # Plain PCIe is what such cards have to other cards.
        names = [name for name in names if name.endswith(STAGED) or not name.startswith("PCIe")]
    names = sorted(names, key=lambda name: links[name]["bandwidth_bytes_per_s"])
    before: dict[str, int] = {}
    found = []
    for link in names:
        priced = assume_costs(subject, read_target_hardware(f"{DEVICES}x{preset}-{link}", None))
        proposals = propose_all(subject.graph, priced, SAME_ON_ALL_LINKS, subject.options.effort)
        now = steps_ns(proposals)
        found += [
            (f"{name} slower over a faster link", f"{step_ns / before[name]:.2f} over {link}")
            for name, step_ns in now.items()
            if name in before and step_ns > before[name] * SLACK
        ]
        before = now
    return found


def steps_ns(proposals: Proposals) -> dict[str, int]:
    """Return the simulated step of each candidate."""
    found = {}
    for name, placement in proposals.placements.items():
        split = proposals.splits.get(name)
        simulator = proposals.simulator if split is None else split.simulator
        found[name] = simulator.step_ns(placement)
    return found


if __name__ == "__main__":
    main()
