"""Memory of split steps as `compare-hardware` predicts it, against what TensorFlow's allocator had.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/split_memory.py SEED...

Random models train on two workers, `batch`, `variables-spread` and `mirrored`, at their own batch
and at twice as much. A peak is what the placement leaves on a worker, which is known, and what the
step held above that at its worst moment.

- *In TensorFlow's order*: each profiled step run through again (`replayed_steps.py`), each worker.
- *In the simulator's order*, on assumed costs: the fullest worker, against the median step.
- *From smaller batches*: that at the larger batch, from traces of the smaller one and of half of
  that: by how much memory a card must have for the largest batch that fits to be as large.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from machine_facts import machine_facts
from model_tracing import answered, called
from random_models import random_model
from replayed_steps import replayed

from placement_advisor.analysis.scaled_steps import FoldedSteps
from placement_advisor.analysis.tracing import split_among
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.plan import SPLIT, shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import SPREAD, graph_of, placed_on_devices
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.collectives import ring_of_devices
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.errors import BatchSplitError
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.children import Child, preload
from placement_advisor.profile.worker_steps import read_worker_steps
from placement_advisor.testbed.mirrored_testbed import MirroredTestbed
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replayed_steps import Replayed

    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.tf.answers import TracedSplit

_FAMILIES = (BATCH, SPREAD, MIRRORED)
_REPLAYED, _SIMULATED = "peak in TensorFlow's order", "peak in the simulator's order"
_FROM_SMALLER = "peak from smaller batches"
_NEEDS, _WITHOUT = ("training", "functional"), ("loop_in_graph",)
_DEVICES = 2
_TIME_LIMIT_S = 300.0
_WARM_UP, _STEPS = 3, 5


def main() -> None:
    """Print a row for each seed, family and batch, and what all come to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("seeds", type=int, nargs="+")
    preload()
    print(machine_facts())
    errors: dict[str, list[float]] = {_REPLAYED: [], _SIMULATED: [], _FROM_SMALLER: []}
    for seed in parser.parse_args().seeds:
        for what, error in _errors(seed):
            errors[what].append(error)
    for what, found in errors.items():
        if found:
            off = np.abs(found)
            print(
                f"{len(found)} × {what}: error median {np.median(off):.1%}, 90th percentile "
                f"{np.quantile(off, 0.9):.1%}, largest {off.max():.1%}; "
                f"{np.mean(off <= 0.1):.0%} within 10 %"
            )


def _errors(seed: int) -> Iterator[tuple[str, float]]:
    model = random_model(seed, needs=_NEEDS, without=_WITHOUT)
    line = f"BATCH_SIZE = {model.batch_size}\n"
    assert model.text.count(line) == 1
    batches = (model.batch_size, 2 * model.batch_size)
    ran = {}
    with tempfile.TemporaryDirectory() as folder:
        for batch in batches:
            path = Path(folder) / f"random_{seed}_{batch}.py"
            path.write_text(model.text.replace(line, f"BATCH_SIZE = {batch}\n"))
            answer = _ran(path, batch, path.with_suffix(""))
            if isinstance(answer, BatchSplitError):
                print(f"{seed}, batch {batch}: {answer.message}", flush=True)
                return
            ran[batch] = answer
    for family in _FAMILIES:
        yield from _held_against(f"{seed:<8}{family:<10}", family, batches, ran)


def _held_against(
    label: str,
    family: str,
    batches: tuple[int, int],
    ran: dict[int, _Ran],
) -> Iterator[tuple[str, float]]:
    taken: dict[int, int] = {}
    for batch in batches:
        profiled = ran[batch].profiled[family]
        asked = profiled.asked
        if len(asked) < _DEVICES:
            print(f"{label}batch {batch}: nothing was reported", flush=True)
            continue
        of_steps = [each.error for step in profiled.replayed for each in step.values()]
        if of_steps:
            least, most = min(of_steps), max(of_steps)
            print(f"{label}{batch:>6} in TensorFlow's order {least:+.1%} to {most:+.1%}")
        for error in of_steps:
            yield _REPLAYED, error
        of_two = ran[batch].traces[_DEVICES].folded()
        cluster = assumed_cluster(_DEVICES)
        step = FoldedSteps(cluster).simulated(family, of_two, cluster, [ring_of_devices(cluster)])
        peaks = [step.memory.peak(device) for device in range(_DEVICES)]
        names = cluster.device_names()
        taken[batch] = max(
            peak.resident_bytes + asked[name] for peak, name in zip(peaks, names, strict=True)
        )
        predicted = max(peak.size_bytes for peak in peaks)
        error = predicted / taken[batch] - 1
        sizes = f"{format_bytes(predicted):>10}{format_bytes(taken[batch]):>10}"
        print(f"{label}{batch:>6}{sizes}{error:>+8.1%}", flush=True)
        yield _SIMULATED, error
    small, large = batches
    if large in taken:
        predicted = _needed_bytes(family, ran[small].traces, large // _DEVICES, taken[large])
        error = predicted / taken[large] - 1
        print(f"{label}{large:>6}{format_bytes(predicted):>10} from smaller ones{error:>+8.1%}")
        yield _FROM_SMALLER, error


def _needed_bytes(family: str, traces: dict[int, SplitTraces], batch: int, about_bytes: int) -> int:
    """Return the least memory with which so large a batch is said to fit, to 0.1 %."""
    low, high = 0, 4 * about_bytes
    while high - low > about_bytes // 1000:
        middle = (low + high) // 2
        largest = _largest(family, traces, middle)
        if largest is None or largest >= batch:
            high = middle
        else:
            low = middle
    return high


def _largest(family: str, traces: dict[int, SplitTraces], memory_bytes: int) -> int | None:
    """Return the most samples for each device, as told from the traces of one batch."""
    cluster = assumed_cluster(_DEVICES)
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in cluster.devices)
    cluster = replace(cluster, devices=devices)
    rings = [ring_of_devices(cluster)]
    step = FoldedSteps(cluster).simulated(family, traces[_DEVICES].folded(), cluster, rings)
    smaller = traces[2 * _DEVICES].of_share(_DEVICES).folded()
    return step.memory.busiest(step.sized(smaller)).largest_batch


class _Ran(NamedTuple):
    """A model whose batch was shared by two: traces for two and for four, profiles by family."""

    traces: dict[int, SplitTraces]
    profiled: dict[str, _Profiled]


class _Profiled(NamedTuple):
    """Bytes above what stood between steps, by device, in the median step; each step replayed."""

    asked: Mapping[str, int]
    replayed: list[dict[str, Replayed]]


def _ran(path: Path, batch: int, folder: Path) -> _Ran | BatchSplitError:
    bundle, scratch = folder / "bundle", folder / "scratch"
    scratch.mkdir(parents=True)
    (bundle / BATCH).mkdir(parents=True)
    with Child("loader") as loader:
        called(loader, tracer.load_workload, ModelSource(path=str(path), mode="train"))
        traced = called(loader, tracer.trace_workload, str(path), str(bundle))
        shares = shares_of(batch, [1.0] * _DEVICES)
        try:
            split = split_among(loader, shares, bundle / BATCH, _TIME_LIMIT_S)
            counts = (_DEVICES, 2 * _DEVICES)
            if isinstance(split, BatchSplitError):
                return split
            traces = {
                count: called(loader, splitter.trace_split, shares_of(batch, [1.0] * count))
                for count in counts
            }
        except BatchSplitError as error:
            return error
    testbed = Testbed(plan_testbed(TestbedKind.WORKERS, _DEVICES), scratch=scratch)
    testbed.add_program(STEP, bundle, traced.graph)
    testbed.add_program(BATCH, bundle / BATCH / SPLIT, split.graphs[BATCH].graph)
    mirrored = MirroredTestbed(
        testbed, _source(path), bundle, traced.created,
        captured=None, program=BATCH, draws=split.draws, statistics=split.statistics,
    )  # fmt: skip
    try:
        testbed.start()
        mirrored.start()
        benches = {BATCH: testbed, SPREAD: testbed, MIRRORED: mirrored}
        return _Ran(traces, {each: _profiled(each, benches[each], split) for each in _FAMILIES})
    finally:
        mirrored.close()
        testbed.close()


def _profiled(family: str, bench: Testbed | MirroredTestbed, split: TracedSplit) -> _Profiled:
    names = [device.name for device in plan_testbed(TestbedKind.WORKERS, _DEVICES).devices]
    step = split.graphs[graph_of(family)]
    placement = placed_on_devices(family, step, names, None, "")
    assert not isinstance(placement, NotApplicable)
    prepared = answered(bench.prepare(family, placement.device_of, BATCH))
    answered(bench.run_steps(family, 0, _WARM_UP))
    files = answered(bench.profile(family, _STEPS))
    crossings = prepared.crossings
    read = read_worker_steps(
        files.devices, files.client, crossings, prepared.exchanged_bytes, files.clocks
    )
    again = replayed(step.graph, placement, files, crossings, step.collective_of)
    return _Profiled(read.step_memory_bytes, list(again))


def _source(path: Path) -> ModelSource:
    return ModelSource(
        path=str(path), name=None, mode="train", batch_size=None, outputs=(),
        time_limit_s=_TIME_LIMIT_S,
    )  # fmt: skip


if __name__ == "__main__":
    main()
