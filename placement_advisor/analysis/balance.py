"""`advisor balance`: times each device at several batch sizes, and shares the batch by that.

The search begins at the split that the lines of the devices suggest: merging what replicas
computed takes time that no line has. It moves samples from one device to another as long as the
measured step becomes shorter, fewer each time.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.tracing import check_runs, child_ended, traced_model
from placement_advisor.candidates import references
from placement_advisor.candidates.batch_split import plan as split_plan
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.cost import batch as batch_costs
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError, TestbedError
from placement_advisor.files.output import scratch_folder
from placement_advisor.machine.testbed_plan import TestbedKind, TestbedPlan, plan_here
from placement_advisor.processes.calls import CallFailure, expect
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.testbed import Testbed
from placement_advisor.tf.calls import runner, splitter
from placement_advisor.tf.load.model_source import ModelSource, source_kind
from placement_advisor.units import NS_PER_S, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import TracedShare, TracedSplit

    SplitBundle = tuple[TracedSplit, Path]


# Judgement: an odd number, so that the median is a round, of which three may be disturbed. How near
# the advice comes to the best of a sweep is shown in docs/how-to/uneven.md.
_ROUNDS = 7
# What a turn takes at least, so that a device which is slowed down in slices shows its mean speed:
# three of the 100 ms periods in which Linux' scheduler hands out a cgroup's quota.
_TURN_NS = 0.3 * NS_PER_S
# Of steps shorter than 6 ms so many say as much as a full turn would. Judgement.
_MAX_STEPS = 50
# As in a trial (`trial.py`).
_WARM_UP = 3
# Of a search: the first move is this part of the batch, and so many splits are tried at most.
# Judgement: halving from an eighth reaches single samples of a batch of 128 in five moves each way.
_FIRST_MOVE = 8
_MOST_TRIED = 12


class _StepTurns:
    """Steps that run on a testbed in turns; ``step_ns`` has the times of each, by label."""

    def __init__(self, testbed: Testbed, watcher: ProgressReporter) -> None:
        self._testbed, self._watcher = testbed, watcher
        self._latest_ns: dict[str, list[int]] = {}
        self.step_ns: dict[str, list[int]] = {}

    def prepare(self, label: str, device_of: Mapping[str, str], program: str) -> None:
        """Make a step ready and warm it up."""
        expect(self._testbed.prepare(label, device_of, program), partial(_run_error, label))
        self._latest_ns[label] = self._run(label, _WARM_UP)
        self.step_ns.setdefault(label, [])

    def time(self, labels: Sequence[str], what: str) -> None:
        """Time steps that are ready, round by round."""
        for number in range(_ROUNDS):
            for label in labels:
                self._watcher.working(what, number, _ROUNDS, label)
                steps = _TURN_NS / max(1.0, median(self._latest_ns[label]))
                times_ns = self._run(label, 1 + max(3, min(_MAX_STEPS, round(steps))))[1:]
                self.step_ns[label] += times_ns
                self._latest_ns[label] = times_ns[-_WARM_UP:]

    def discard_all_but(self, kept: Collection[str]) -> None:
        """Free the state of what is ready: each step has variables of its own."""
        for label in self._latest_ns.keys() - set(kept):
            expect(self._testbed.call(runner.discard, label), partial(_run_error, label))
            del self._latest_ns[label]

    def is_ready(self, label: str) -> bool:
        """Return whether a step can run."""
        return label in self._latest_ns

    def _run(self, label: str, steps: int) -> list[int]:
        return expect(self._testbed.run_steps(label, 0, steps), partial(_run_error, label))


def time_devices(
    testbed: Testbed,
    shares: Mapping[int, TracedShare],
    bundles: Mapping[int, Path],
    watcher: ProgressReporter,
) -> tuple[batch_costs.DeviceSpeed, ...]:
    """Time each share of a batch on each device of a running testbed, alone and in turns.

    ``shares`` has the traces by number of samples, ``bundles`` the folder of each.

    Raises:
        TestbedError: a step does not run on one of the devices.
    """
    names = [device.name for device in testbed.plan.devices]
    label_of = {(name, n): f"{n} samples on {name}" for n in shares for name in names}
    for samples, share in shares.items():
        testbed.add_program(split_plan.share_folder(samples), bundles[samples], share.graph)
    turns = _StepTurns(testbed, watcher)
    for done, ((name, samples), label) in enumerate(label_of.items()):
        watcher.working("preparing", done, len(label_of), label)
        alone = references.on_device(shares[samples].graph, name)
        turns.prepare(label, alone.device_of, split_plan.share_folder(samples))
    turns.time([*label_of.values()], "timing rounds")
    turns.discard_all_but(())
    return tuple(
        batch_costs.speed_of(name, {n: turns.step_ns[label_of[name, n]] for n in shares})
        for name in names
    )


def memory_of(shares: Mapping[int, OpGraph]) -> batch_costs.BatchMemory:
    """Return what a step holds on one device, simulated, against the samples of its batch.

    ``shares`` has the step's op graph by number of samples.
    """
    cluster = assumed_cluster(1)
    device = cluster.devices[0].name
    peak_bytes = {}
    for samples, graph in shares.items():
        simulator = Simulator(graph, roofline_by_place(graph, cluster), cluster)
        schedule = simulator.schedule(references.on_device(graph, device))
        peak_bytes[samples] = schedule.peak_memory_bytes[device]
    return batch_costs.fit_batch_memory(peak_bytes)


class SplitSearch:
    """Measured steps of splits of a batch, by the samples of each device."""

    def __init__(
        self,
        testbed: Testbed,
        split: Callable[[tuple[int, ...]], SplitBundle],
        most: Sequence[int | None],
        watcher: ProgressReporter,
    ) -> None:
        """Run on a started testbed; ``split`` puts a split step together.

        ``most`` are the samples that each device's memory holds, None for no known limit.
        """
        self._testbed, self._split, self._watcher = testbed, split, watcher
        self._most, self._turns = most, _StepTurns(testbed, watcher)
        self._label_of: dict[tuple[int, ...], str] = {}

    def tried(self) -> dict[tuple[int, ...], int]:
        """Return the mean step of every split that was timed, in ns."""
        return {
            samples: round(batch_costs.trimmed_mean(self._turns.step_ns[label]))
            for samples, label in self._label_of.items()
        }

    def fit(self, samples: Sequence[int]) -> bool:
        """Return whether each device's memory holds its share."""
        pairs = zip(samples, self._most, strict=True)
        return all(limit is None or share <= limit for share, limit in pairs)

    def search(self, start: tuple[int, ...]) -> tuple[int, ...]:
        """Return the best split that a search from ``start`` finds.

        Raises:
            BatchSplitError: the batch cannot be split as at the start.
            TestbedError: a step does not run.
        """
        best, by = start, max(1, sum(start) // _FIRST_MOVE)
        self.time([best])
        while by and len(self._label_of) < _MOST_TRIED:
            new = (m for m in _neighbor_splits(best, by) if m not in self._label_of)
            moves = [move for move in new if self.fit(move)]
            for move in moves[: _MOST_TRIED - len(self._label_of)]:
                with suppress(BatchSplitError):  # A share of one sample can be another graph.
                    self.time([best, move])
            found = min(self.tried(), key=self.tried().__getitem__)
            best, by = (found, by) if found != best else (best, by // 2)
            self._turns.discard_all_but([self._label_of[best]])
        return best

    def time(self, splits: Sequence[tuple[int, ...]]) -> None:
        """Time splits in turns.

        Raises:
            BatchSplitError: the batch cannot be split so.
            TestbedError: a step does not run.
        """
        for samples in splits:
            if not self._turns.is_ready(_split_label(samples)):
                self._prepare(samples)
        self._turns.time([self._label_of[samples] for samples in splits], "timing splits")

    def _prepare(self, samples: tuple[int, ...]) -> None:
        label = _split_label(samples)
        self._watcher.working("splitting the batch", len(self._label_of), _MOST_TRIED, label)
        traced, folder = self._split(samples)
        self._testbed.add_program(label, folder, traced.graphs[BATCH].graph)
        names = [device.name for device in self._testbed.plan.devices]
        placement = traced.graphs[BATCH].placed(names, label=label, rationale="")
        self._turns.prepare(label, placement.device_of, label)
        self._label_of[samples] = label


def with_every_device(samples: tuple[int, ...]) -> tuple[int, ...]:
    """Return the split with a sample for each device that has none, from the one with most."""
    missing = samples.count(0)
    fullest = samples.index(max(samples))
    return tuple(
        share - missing if i == fullest else max(1, share) for i, share in enumerate(samples)
    )


def _neighbor_splits(samples: tuple[int, ...], by: int) -> Iterator[tuple[int, ...]]:
    """Yield the splits with so many samples moved from one device to another."""
    for giver, taker in permutations(range(len(samples)), 2):
        if samples[giver] > by:
            moved = list(samples)
            moved[giver] -= by
            moved[taker] += by
            yield tuple(moved)


def _split_label(samples: Sequence[int]) -> str:
    return ":".join(map(str, samples))


def _run_error(label: str, failure: CallFailure) -> TestbedError:
    return TestbedError(f"{label}: the step does not run: {failure.message}")


def balance(
    source: ModelSource,
    testbed: TestbedKind | None,
    devices: int,
    memory_bytes: Sequence[int] | None,
    open_ports: bool,
    watcher: ProgressReporter,
) -> batch_costs.Balance:
    """Time a model alone on each device at several batch sizes, and share its batch among them.

    ``memory_bytes`` are those of each device, or of all; None for what the devices say.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    source_kind(Path(source.path))
    plan = plan_here(testbed, devices, open_ports=open_ports, note=watcher.note)
    if memory_bytes is not None:
        plan = _with_memory(plan, memory_bytes)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        loader = stack.enter_context(Child("loader"))
        traced = traced_model(source, None, loader, watcher)
        check_runs(traced, source)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        even = split_plan.shares_of(batch, [1.0] * len(plan.devices))
        watcher.working("tracing other batch sizes", 0, 1)
        steps = _StepsAtBatches(source, traced.name, loader, scratch)
        shares = steps.traced(batch_costs.sizes_to_time(batch))
        _check_no_pairs(source, traced.name, shares)
        memory = memory_of({samples: share.graph for samples, share in shares.items()})
        alone = batch_costs.largest_alone(batch, plan.devices, memory)
        if alone < batch:
            shares = steps.traced(batch_costs.sizes_to_time(alone))
        running = Testbed(plan, scratch=scratch)
        stack.callback(running.close)
        watcher.working("starting devices", 0, 1)
        running.start()
        bundles = {samples: scratch / split_plan.share_folder(samples) for samples in shares}
        speeds = time_devices(running, shares, bundles, watcher)
        most = [memory.largest_batch(device.memory_bytes) for device in plan.devices]
        lines = [speed.line for speed in speeds]
        by_lines = batch_costs.best_split(lines, batch, most)
        off = batch_costs.misfit_of(speeds)
        is_line = off <= batch_costs.MAX_MISFIT
        splits = SplitSearch(running, steps.split, most, watcher)
        warnings, advised = list(plan.warnings), by_lines.batches
        try:
            if splits.fit(even):
                splits.time([even])
            advised = splits.search(with_every_device(advised))
        except BatchSplitError as error:
            if not is_line:
                raise ModelError(
                    f"{source.path}: no split can be run: {error.message}. Step times of devices "
                    f"alone are {format_share(off)} off a line over the batch, so they predict none"
                ) from None
            warnings.append(f"no split was run: {error.message}")
        running.close()
    if not is_line:
        warnings.append(
            f"step times are {format_share(off)} off a straight line over the batch, so "
            "nothing is predicted for other batches"
        )
    return batch_costs.Balance(
        model=source.path if source.name is None else f"{source.path}:{source.name}",
        testbed=plan.description,
        batch=batch,
        batch_was_asked=source.batch_size is not None,
        devices=speeds,
        memory=memory,
        most=tuple(most),
        best=by_lines,
        even=batch_costs.split_step(lines, even),
        others=batch_costs.other_batches(speeds, batch, most) if is_line else (),
        best_batch=batch_costs.best_batch(lines, most) if is_line else None,
        advised=advised,
        tried=splits.tried(),
        warnings=tuple(warnings),
    )


def _check_no_pairs(source: ModelSource, name: str, shares: Mapping[int, TracedShare]) -> None:
    """Check that shares of the batch make up what the whole computes.

    Raises:
        ModelError: they do not.
    """
    (most, whole), *smaller = sorted(shares.items(), reverse=True)
    try:
        for samples, share in smaller:
            split_plan.check_no_pairs(whole.graph, share.graph, most / samples)
    except BatchSplitError as error:
        raise ModelError(f"{source.path}: {name}: {error.message}") from None


def _with_memory(plan: TestbedPlan, memory_bytes: Sequence[int]) -> TestbedPlan:
    """Return the plan with a memory for each device, or one for all.

    Raises:
        AdvisorError: neither as many as devices nor one.
    """
    count = len(plan.devices)
    each = [*memory_bytes] * count if len(memory_bytes) == 1 else memory_bytes
    if len(each) != count:
        raise AdvisorError(
            f"--memory: {len(each)} sizes for {count} devices",
            hint="give one for each device, or one for all",
        )
    devices = (replace(d, memory_bytes=m) for d, m in zip(plan.devices, each, strict=True))
    return replace(plan, devices=tuple(devices))


class _StepsAtBatches:
    """A traced model at other sizes of its batch, and with its batch split."""

    def __init__(self, source: ModelSource, name: str, loader: Child, scratch: Path) -> None:
        self._source, self._name = source, name
        self._loader, self._scratch = loader, scratch

    def traced(self, sizes: tuple[int, ...]) -> Mapping[int, TracedShare]:
        """Trace the step at batch sizes; what is needed to run it goes into `share_folder`.

        Raises:
            ModelError: it cannot be traced there.
        """
        answer = self._loader.call(
            splitter.trace_shares, sizes, str(self._scratch), time_limit_s=self._source.time_limit_s
        )
        if isinstance(answer, BatchSplitError):
            raise ModelError(f"{self._source.path}: {self._name}: {answer.message}")
        return expect(answer, partial(child_ended, self._source, "tracing other batch sizes"))

    def split(self, samples: tuple[int, ...]) -> tuple[TracedSplit, Path]:
        """Split the batch; return the split step and the folder of what is needed to run it.

        Raises:
            BatchSplitError: it cannot be split so.
        """
        folder = self._scratch / ":".join(map(str, samples))
        folder.mkdir(exist_ok=True)
        answer = self._loader.call(
            splitter.split_workload, samples, str(folder), time_limit_s=self._source.time_limit_s
        )
        if isinstance(answer, BatchSplitError):
            raise answer
        found = expect(answer, partial(child_ended, self._source, "splitting the batch"))
        return found, folder / split_plan.SPLIT
