"""What tests read of processor time from inside the processes of a testbed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.run import graph_timing, runner
from placement_advisor.tf.run.graph_timing import GraphTimer, fan

if TYPE_CHECKING:
    from collections.abc import Mapping


def own_reading(carriers: tuple[int, ...]) -> tuple[int, int, int]:
    """Return what an op reads of this process and carriers, between two readings without one."""
    token = graph_timing.offer_core_clock(carriers)
    with tf.Graph().as_default() as graph:
        reading = graph_timing.read_core_clock(token)
    with tf.compat.v1.Session(graph=graph) as session:
        session.run(reading)
        before_ns = time.process_time_ns() + sum(map(_outside, carriers))
        read_ns = int(session.run(reading))
        return before_ns, read_ns, time.process_time_ns() + sum(map(_outside, carriers))


def copying_by_both_clocks(
    tokens: Mapping[str, str], process_ids: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Return by device what copies cost its core: read by an op, and around that from outside."""
    source, target = tokens
    bench = GraphTimer(runner._runtime, runner._devices, tokens)
    with tf.Graph().as_default() as graph:
        ends = fan((source, target), 1 << 20, 10)(bench)
        readings = bench._read_clocks(bench)
    with runner._runtime.session(graph) as session:
        session.run(bench._holders)
        session.run(ends)
        outer = [_outside(process_ids[device]) for device in tokens]
        before: list[Any] = session.run(readings)
        for _ in range(5):
            session.run(ends)
        after: list[Any] = session.run(readings)
        outer_after = [_outside(process_ids[device]) for device in tokens]
    return {
        device: (int(after[i] - before[i]), outer_after[i] - outer[i])
        for i, device in enumerate(tokens)
    }


def _outside(process: int) -> int:
    """Return the processor time of another process.

    Source: clock_getcpuclockid(3), whose Linux implementation this is; Python does not have it.
    """
    processor_time = 2
    return time.clock_gettime_ns((~process << 3) | processor_time)
