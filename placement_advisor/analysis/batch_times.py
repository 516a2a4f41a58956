"""Times a step on the devices of a testbed: alone at several batch sizes, and with its batch split.

The split that lines of devices alone make the best is where a search begins: merging what replicas
computed takes time on either side that no line has. It moves samples from one device to another as
long as that makes the measured step shorter, by less and less.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import permutations
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.candidates import single
from placement_advisor.candidates.batch_split.programs import share_folder
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.cost.batch_balance import DeviceSpeed, speed_of, trimmed_mean
from placement_advisor.cost.batch_memory import BatchMemory, fit_batch_memory
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import BatchSplitError, TestbedError
from placement_advisor.processes.call_failure import CallFailure, expect
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.calls import runner
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.answers import TracedShare, TracedSplit

    SplitBundle = tuple[TracedSplit, Path]

# Judgement: an odd number, so that the median is a round, of which three may be disturbed. How near
# the advice comes to the best of a sweep is shown by `uneven_workers`, before 0.2
# (docs/uneven.md).
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


def time_devices(
    testbed: Testbed,
    shares: Mapping[int, TracedShare],
    bundles: Mapping[int, Path],
    watcher: Watcher,
) -> tuple[DeviceSpeed, ...]:
    """Time each share of a batch on each device of a running testbed, alone and in turns.

    ``shares`` has the traces by number of samples, ``bundles`` the folder of each.

    Raises:
        TestbedError: a step does not run on one of the devices.
    """
    names = [device.name for device in testbed.plan.devices]
    runs = [(name, samples) for samples in shares for name in names]
    for samples, share in shares.items():
        testbed.add_program(share_folder(samples), bundles[samples], share.graph)
    for done, (name, samples) in enumerate(runs):
        label = _label(name, samples)
        watcher.working("preparing", done, len(runs), label)
        alone = single.on_device(shares[samples].graph, name)
        expect(
            testbed.prepare(label, alone.device_of, share_folder(samples)),
            partial(_does_not_run, label),
        )
    steps = {run: _steps(_run(testbed, _label(*run), _WARM_UP)) for run in runs}
    samples_ns: dict[tuple[str, int], list[int]] = {run: [] for run in runs}
    for number in range(_ROUNDS):
        for run in runs:
            watcher.working("timing rounds", number, _ROUNDS, _label(*run))
            samples_ns[run] += _run(testbed, _label(*run), 1 + steps[run])[1:]
    for run in runs:
        expect(testbed.call(runner.discard, _label(*run)), partial(_does_not_run, _label(*run)))
    return tuple(
        speed_of(name, {samples: samples_ns[name, samples] for samples in shares}) for name in names
    )


def memory_of(shares: Mapping[int, OpGraph]) -> BatchMemory:
    """Return what a step holds on one device, simulated, against the samples of its batch.

    ``shares`` has the step's op graph by number of samples.
    """
    cluster = assumed_cluster(1)
    device = cluster.devices[0].name
    peak_bytes = {}
    for samples, graph in shares.items():
        simulator = Simulator(graph, roofline_by_place(graph, cluster), cluster)
        schedule = simulator.schedule(single.on_device(graph, device))
        peak_bytes[samples] = schedule.peak_memory_bytes[device]
    return fit_batch_memory(peak_bytes)


class Splits:
    """Measured steps of splits of a batch, by the samples of each device."""

    def __init__(
        self,
        testbed: Testbed,
        split: Callable[[tuple[int, ...]], SplitBundle],
        most: Sequence[int | None],
        watcher: Watcher,
    ) -> None:
        """Run on a started testbed; ``split`` puts a split step together.

        ``most`` are the samples that each device's memory holds, None for no known limit.
        """
        self._testbed, self._split, self._watcher = testbed, split, watcher
        self._most = most
        self._step_ns: dict[tuple[int, ...], list[int]] = {}
        self._ready: set[tuple[int, ...]] = set()

    def tried(self) -> dict[tuple[int, ...], int]:
        """Return the mean step of every split that was timed, in ns."""
        return {samples: round(trimmed_mean(times)) for samples, times in self._step_ns.items()}

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
        while by and len(self._step_ns) < _MOST_TRIED:
            new = (m for m in _moves(best, by) if m not in self._step_ns)
            moves = [move for move in new if self.fit(move)]
            for move in moves[: _MOST_TRIED - len(self._step_ns)]:
                with suppress(BatchSplitError):  # A share of one sample can be another graph.
                    self.time([best, move])
            found = min(self.tried(), key=self.tried().__getitem__)
            best, by = (found, by) if found != best else (best, by // 2)
            self._discard_all_but(best)
        return best

    def time(self, splits: Sequence[tuple[int, ...]]) -> None:
        """Time splits in turns.

        Raises:
            BatchSplitError: the batch cannot be split so.
            TestbedError: a step does not run.
        """
        for samples in splits:
            if samples not in self._ready:
                self._prepare(samples)
        for number in range(_ROUNDS):
            for samples in splits:
                self._watcher.working("timing splits", number, _ROUNDS, _ratio(samples))
                self._step_ns[samples] += self._turn(samples)

    def _prepare(self, samples: tuple[int, ...]) -> None:
        label = _ratio(samples)
        self._watcher.working("splitting the batch", len(self._step_ns), _MOST_TRIED, label)
        traced, folder = self._split(samples)
        self._testbed.add_program(label, folder, traced.graphs[BATCH].graph)
        names = [device.name for device in self._testbed.plan.devices]
        placement = traced.graphs[BATCH].placed(names, label=label, rationale="")
        expect(
            self._testbed.prepare(label, placement.device_of, label), partial(_does_not_run, label)
        )
        _run(self._testbed, label, _WARM_UP)
        self._step_ns.setdefault(samples, [])
        self._ready.add(samples)

    def _discard_all_but(self, best: tuple[int, ...]) -> None:
        """Free the state of all others: each has variables of its own."""
        for samples in self._ready - {best}:
            label = _ratio(samples)
            expect(self._testbed.call(runner.discard, label), partial(_does_not_run, label))
        self._ready &= {best}

    def _turn(self, samples: tuple[int, ...]) -> list[int]:
        label = _ratio(samples)
        known = self._step_ns[samples] or _run(self._testbed, label, 2)
        return _run(self._testbed, label, 1 + _steps(known[-_WARM_UP:]))[1:]


def with_every_device(samples: tuple[int, ...]) -> tuple[int, ...]:
    """Return the split with a sample for each device that has none, from the one with most."""
    missing = samples.count(0)
    fullest = samples.index(max(samples))
    return tuple(
        share - missing if i == fullest else max(1, share) for i, share in enumerate(samples)
    )


def _moves(samples: tuple[int, ...], by: int) -> Iterator[tuple[int, ...]]:
    """Yield the splits with so many samples moved from one device to another."""
    for giver, taker in permutations(range(len(samples)), 2):
        if samples[giver] > by:
            moved = list(samples)
            moved[giver] -= by
            moved[taker] += by
            yield tuple(moved)


def _ratio(samples: Sequence[int]) -> str:
    return ":".join(map(str, samples))


def _steps(times_ns: Sequence[int]) -> int:
    return max(3, min(_MAX_STEPS, round(_TURN_NS / max(1.0, median(times_ns)))))


def _label(device: str, samples: int) -> str:
    return f"{samples} samples on {device}"


def _run(testbed: Testbed, label: str, steps: int) -> list[int]:
    return expect(testbed.run_steps(label, 0, steps), partial(_does_not_run, label))


def _does_not_run(label: str, failure: CallFailure) -> TestbedError:
    return TestbedError(f"{label}: the step does not run: {failure.message}")
