"""Two workers made uneven: the advised ratio against a measured sweep of ratios.

    python tests/benchmarks/uneven_workers.py MODEL [--batch N] [--quota 40] [--seconds 10]

Needs root and cgroup v1 with the cpu controller: the second worker may use its core for QUOTA % of
each 10 ms. First each worker is timed alone, as `advisor balance` does, and the advice is printed.
Then splits of the batch at nine ratios, the even and the advised among them, run in turns, each for
SECONDS in all.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silent import Silent

from placement_advisor.analysis.balance import SplitSearch, memory_of, time_devices
from placement_advisor.candidates.batch_split.plan import SPLIT, share_folder, shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.cost.batch import split_step
from placement_advisor.cost.batch_balance import Balance, DeviceSpeed, best_by_lines, sizes_to_time
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure, expect
from placement_advisor.processes.children import Child, preload
from placement_advisor.report.plans import render_balance
from placement_advisor.testbed.testbed import Testbed
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from placement_advisor.cost.batch_memory import BatchMemory
    from placement_advisor.tf.answers import TracedSplit

_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 10_000
_LIMIT_S = 300.0
_RATIOS = 9
_NO_LIMITS = (None, None)
_TURN_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--quota", type=int, default=40, help="percent of a core")
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    preload()
    with tempfile.TemporaryDirectory() as folder:
        _compare(asked, Path(folder))


def _compare(asked: argparse.Namespace, scratch: Path) -> None:
    testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 2), scratch=scratch)
    with Child("loader") as loader:
        path = str(asked.model)
        _call(loader, tracer.load_workload, ModelSource(path=path, batch_size=asked.batch))
        traced = _call(loader, tracer.trace_workload, path, None)
        sizes = sizes_to_time(traced.batch_size)
        shares = _call(loader, splitter.trace_shares, sizes, str(scratch))
        try:
            testbed.start()
            with _slowed(testbed.process_ids["worker:1"], asked.quota):
                bundles = {samples: scratch / share_folder(samples) for samples in shares}
                speeds = time_devices(testbed, shares, bundles, Silent())
                splits = SplitSearch(
                    testbed,
                    lambda samples: _split(loader, samples, scratch),
                    _NO_LIMITS,
                    Silent(),
                )
                even = shares_of(traced.batch_size, (1, 1))
                splits.time([even])
                advised = splits.search(
                    best_by_lines(speeds, traced.batch_size, _NO_LIMITS).batches
                )
                graphs = {samples: share.graph for samples, share in shares.items()}
                told = _told(
                    path, testbed, traced.batch_size, speeds, memory_of(graphs), splits, advised
                )
                print(told, flush=True)
                firsts = _firsts(traced.batch_size, advised[0])
                rates = _sweep(testbed, loader, traced.batch_size, firsts, scratch, asked.seconds)
        finally:
            testbed.close()
    notes = {even[0]: " even", advised[0]: " advised"}
    for first, rate in rates.items():
        note = notes.get(first, "")
        print(f"{first:>5} + {traced.batch_size - first:<5} {rate:>8.1f} samples/s{note}")
    rate = rates[advised[0]]
    print(f"advised / best of the sweep: {rate / max(rates.values()):.3f}")
    print(f"advised / even: {rate / rates[even[0]]:.3f}")


def _told(
    path: str,
    testbed: Testbed,
    batch: int,
    speeds: tuple[DeviceSpeed, ...],
    memory: BatchMemory,
    splits: SplitSearch,
    advised: tuple[int, ...],
) -> str:
    """Return what `advisor balance` would say."""
    return render_balance(
        Balance(
            model=path,
            testbed=testbed.plan.description,
            batch=batch,
            batch_was_asked=True,
            devices=speeds,
            memory=memory,
            most=_NO_LIMITS,
            best=best_by_lines(speeds, batch, _NO_LIMITS),
            even=split_step([speed.line for speed in speeds], shares_of(batch, (1, 1))),
            others=(),
            best_batch=None,
            advised=advised,
            tried=splits.tried(),
            warnings=(),
        )
    )


def _split(loader: Child, samples: tuple[int, ...], scratch: Path) -> tuple[TracedSplit, Path]:
    folder = scratch / ":".join(map(str, samples))
    folder.mkdir(exist_ok=True)
    return _call(loader, splitter.split_workload, samples, str(folder)), folder / SPLIT


def _firsts(batch: int, advised: int) -> list[int]:
    """Return nine shares of the first worker: the even and the advised one, and others around."""
    even = batch // 2
    step = max(1, round((batch - even) / _RATIOS))
    others = sorted(range(even - step, batch, step), key=lambda n: abs(n - advised))
    chosen = dict.fromkeys([even, advised, *(n for n in others if 0 < n < batch)])
    return sorted(list(chosen)[:_RATIOS])


def _sweep(
    testbed: Testbed, loader: Child, batch: int, firsts: list[int], scratch: Path, seconds: float
) -> dict[int, float]:
    """Return samples per second at each share of the first worker, measured in turns."""
    for first in firsts:
        split, folder = _split(loader, (first, batch - first), scratch)
        testbed.add_program(str(first), folder, split.graphs[BATCH].graph)
        names = testbed.plan.devices[0].name, testbed.plan.devices[1].name
        placement = split.graphs[BATCH].placed(names, label=str(first), rationale="")
        _run(testbed.prepare(str(first), placement.device_of, str(first)))
    spent_ns = dict.fromkeys(firsts, 0)
    steps = dict.fromkeys(firsts, 0)
    while min(spent_ns.values()) < seconds * 1e9:
        for first in firsts:
            start = time.monotonic()
            _run(testbed.run_steps(str(first), 0, 1))
            while time.monotonic() < start + _TURN_S:
                times = _run(testbed.run_steps(str(first), 0, 5))
                spent_ns[first] += sum(times)
                steps[first] += len(times)
    return {first: batch * steps[first] / spent_ns[first] * 1e9 for first in firsts}


@contextmanager
def _slowed(process: int, percent: int) -> Iterator[None]:
    """Let a process have so much of a core in each period."""
    group = _GROUPS / f"advisor-bench-{os.getpid()}"
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(_PERIOD_US * percent // 100))
    (group / "cgroup.procs").write_text(str(process))
    try:
        yield
    finally:
        (_GROUPS / "cgroup.procs").write_text(str(process))
        group.rmdir()


def _call(child: Child, function: Callable[..., Any], *args: Any) -> Any:
    answer = child.call(function, *args, time_limit_s=_LIMIT_S)
    if isinstance(answer, CallFailure | Exception):
        raise SystemExit(f"{function.__name__}{args}: {answer}")
    return answer


def _run(answer: Any) -> Any:
    return expect(answer, lambda failure: SystemExit(failure.message))


if __name__ == "__main__":
    main()
