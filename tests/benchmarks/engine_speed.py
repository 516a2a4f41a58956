"""How many ops per second the compiled event loop simulates, next to another simulator.

Random graphs on four devices with copy engines, placed at random, so that most tensors cross. The
other simulator is a script that prints a line for each number of ops, which begins with that number
and ends in ``<rate> M ops/s`` (--reference). Both run in turns, the best of each counts. Ours
records the whole schedule: when every op was ready, started and ended, and every transfer.

With ``--compare MODEL MACHINE``, what the stages of `advisor compare-hardware` take instead: by the
clock, and of the processor without its children, which import TensorFlow, load and trace.
"""

import re
import subprocess
import sys
import time
import timeit
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import typer

from placement_advisor.analysis.compare_hardware import compare_hardware
from placement_advisor.report.plans import render_hardware_comparison
from placement_advisor.simulator import event_loop
from placement_advisor.simulator.arrays import Step, Wires
from placement_advisor.tf.load.model_source import ModelSource

_COUNTS = (1_000, 20_000, 200_000)
_DEVICES = 4
# As many as there are tensors would be no model: shapes repeat.
_SIZES = 1_000
_REPEATS = 7
_TURNS = 3


def main(reference: Path | None = None, compare: tuple[str, str] | None = None):
    if compare:
        _compare(*compare)
        return
    steps = {count: _step(count) for count in _COUNTS}
    ours, theirs = (dict.fromkeys(_COUNTS, 0.0) for _ in range(2))
    for _ in range(_TURNS):
        for count, step in steps.items():
            ours[count] = max(ours[count], _rate(step))
        if reference:
            shown = subprocess.check_output([sys.executable, str(reference)], text=True)
            for count, rate in re.findall(r"^(\d+) .* ([\d.]+) M ops/s$", shown, re.MULTILINE):
                theirs[int(count)] = max(theirs[int(count)], float(rate))
    for count, rate in ours.items():
        ratio = f", {rate / theirs[count]:.2f} of {theirs[count]:.1f}" if theirs[count] else ""
        print(f"{count:>8,} ops: {rate:.1f} M ops/s{ratio}")


def _compare(model, machine):
    marks = []

    def working(stage, *_):
        marks.append((stage, time.perf_counter(), time.process_time()))

    watcher = SimpleNamespace(working=working, note=print)
    found = compare_hardware(ModelSource(path=model), [machine], None, watcher)
    working("printing")
    render_hardware_comparison(found)
    working("end")
    for before, after in pairwise(marks):
        clock_s, own_s = after[1] - before[1], after[2] - before[2]
        print(f"{before[0]:<60}{clock_s:8.2f} s{own_s:8.2f} s of the processor")


def _step(count):
    """Return a random graph whose edges mostly lead to ops near by."""
    random = np.random.default_rng(0)
    edges = int(count * 1.6)
    producer = np.sort(random.integers(0, count - 1, edges))
    reader = np.minimum(count - 1, producer + 1 + random.geometric(0.01, edges))
    duration_ns = random.integers(1_000, 100_000, count)
    return Step(
        tensor_start=np.arange(count + 1, dtype=np.uint32),
        reader_start=np.searchsorted(producer, np.arange(count + 1)).astype(np.uint32),
        reader=reader.astype(np.uint32),
        size=random.integers(0, _SIZES, count).astype(np.uint32),
        missing=np.bincount(reader, minlength=count).astype(np.uint32),
        device=random.integers(0, _DEVICES, count).astype(np.uint32),
        duration_ns=duration_ns,
        beside_ns=duration_ns * 2,
        launch_ns=np.full(count, 3_000),
        is_ahead=np.full(_DEVICES, False),
    )


def _rate(step):
    """Return millions of ops per second, the best of some runs."""
    links = _DEVICES**2
    no_work = np.zeros((1, _SIZES), np.int64)
    bytes_ns = np.linspace(0, 100_000, _SIZES).astype(np.int64)[np.newaxis]
    wires = Wires(
        kind=np.zeros(links, np.uint32),
        channel=np.arange(links, dtype=np.uint32),
        latency_ns=np.array([10_000]),
        request_ns=np.array([0]),
        wake_ns=np.array([0]),
        bytes_ns=bytes_ns,
        wire_ns=bytes_ns,
        send_ns=no_work,
        receive_ns=no_work,
    )
    begin_ns = np.zeros(_DEVICES, np.int64)
    quantum_ns, asleep_ns = 3_000_000, 1_000_000
    asked = step, wires, begin_ns, quantum_ns, asleep_ns
    # The first one may compile.
    times_s = timeit.repeat(lambda: event_loop.run(*asked), number=1, repeat=1 + _REPEATS)
    return len(step.device) / min(times_s) / 1e6


if __name__ == "__main__":
    typer.run(main)
