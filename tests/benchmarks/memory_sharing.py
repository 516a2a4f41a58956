"""How much longer a step takes while another core makes the same step.

    PYTHONPATH=tests python tests/benchmarks/memory_sharing.py SEED…

Two processes hold the same random model, on a core each. In turns the first one makes steps while
the other one waits, and while it makes steps too. What the step is longer then comes from what
cores of one machine share: caches and memory. Hosts of the lab share them too, which hosts that are
machines do not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from host_ratios import NEEDS, written

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event

ROUNDS = 20
_WARM_UP = 3
_TURN_S = 0.3


def _steps(path: Path, core: int, orders: Connection, stop: Event) -> None:
    """Make steps when told to: for a while, or until the event is set; answer with their median."""
    os.sched_setaffinity(0, {core})
    import tensorflow as tf

    from placement_advisor.tf.load.loader import load

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    loaded = load(str(path), name=None, mode=None, batch_size=None)
    batch = loaded.batches[0]
    step = tf.function(loaded.step, autograph=loaded.model is None).get_concrete_function(batch)

    def timed() -> float:
        begun = time.perf_counter()
        for result in tf.nest.flatten(step(batch)):
            result.numpy()
        return time.perf_counter() - begun

    for _ in range(_WARM_UP):
        timed()
    orders.send(None)
    while (until_stopped := orders.recv()) is not None:
        times: list[float] = []
        while not stop.is_set() if until_stopped else sum(times) < _TURN_S:
            times.append(timed())
        orders.send(median(times) if times else None)


def slowdown(path: Path) -> tuple[float, float]:
    """Return what a step takes alone, in seconds, and how many times as long beside another one."""
    context = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))[:2]
    stop = context.Event()
    ends: list[Any] = []
    for core in cores:
        ours, theirs = context.Pipe()
        context.Process(target=_steps, args=(path, core, theirs, stop), daemon=True).start()
        ends.append(ours)
    first, other = ends
    for end in ends:
        end.recv()
    alone, ratios = [], []
    for _ in range(ROUNDS):
        first.send(False)
        alone.append(first.recv())
        stop.clear()
        other.send(True)
        first.send(False)
        ratios.append(first.recv() / alone[-1])
        stop.set()
        other.recv()
    for end in ends:
        end.send(None)
    return median(alone), median(ratios)


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--needs", nargs="*", default=NEEDS)
    options = parser.parse_args()
    print("| model | step alone | times as long beside another core |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            path = written(seed, Path(folder), options.needs)
            alone_s, ratio = slowdown(path)
            print(f"| {seed} | {alone_s * 1e3:.1f} ms | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
