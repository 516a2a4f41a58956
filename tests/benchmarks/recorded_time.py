"""Where the time of recorded splits goes that simulation does not foresee.

    PYTHONPATH=tests python tests/benchmarks/recorded_time.py RECORDING…

Recordings are those of `record_runs`. For each placement: its step, simulated and measured; for
each device in how much of the profiled step an op ran there (one that another interrupts counts
once), over what the same ops take in the profile of one device, median of each over all steps; and
how long after the first device the second one had its first op, simulated and profiled.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from record_runs import ELSEWHERE, Recording

from placement_advisor.defaults import BASELINE
from placement_advisor.simulator.schedule import (
    intervals_by_key,
    intervals_length,
    merged_intervals,
)
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from record_runs import Split

    from placement_advisor.measurement.measurement import StepProfile


def _lines(recording: Recording) -> Iterator[str]:
    cluster = recording.costing.cluster
    first, second = cluster.device_names()[:2]
    costs = recording.costing.costs.everywhere(cluster)
    simulator = Simulator(recording.traced.graph, costs, cluster)
    alone = recording.splits[BASELINE]
    assert alone.profile is not None
    alone_ns = median(step for turn in alone.rounds for step in turn)
    simulated_ns = simulator.step_ns(alone.placement)
    yield (
        f"{recording.name}: single {simulated_ns / NS_PER_MS:.2f} / {alone_ns / NS_PER_MS:.2f} ms"
        f"  ops {_longer(alone, alone.profile, alone.profile.op_ns)}"
    )
    for label, split in recording.splits.items():
        if label in (BASELINE, ELSEWHERE) or split.profile is None:
            continue
        schedule = simulator.schedule(split.placement)
        begins = [
            (_first(runs, second) - _first(runs, first)) / NS_PER_MS
            for runs in (
                [(run.device, run.start_ns) for run in schedule.runs],
                [(span.lane, span.start_ns) for span in split.profile.timeline],
            )
        ]
        step_ns = recording.ratio(label) * alone_ns
        yield (
            f"  {label:<20} {schedule.step_ns / NS_PER_MS:7.2f} / {step_ns / NS_PER_MS:7.2f} ms"
            f"  ops {_longer(split, split.profile, alone.profile.op_ns)}"
            f"  second device begins {begins[0]:+.2f} / {begins[1]:+.2f} ms"
        )


def _first(starts: Iterable[tuple[str, int]], device: str) -> int:
    return min(start_ns for where, start_ns in starts if where == device)


def _longer(split: Split, profile: StepProfile, alone_ns: Mapping[str, int]) -> str:
    """Return for each device how much longer its ops take than on one device alone."""
    ran = intervals_by_key(
        (s.lane, (s.start_ns, s.end_ns)) for s in profile.timeline if not s.is_copy
    )
    told = []
    for device, spans in sorted(ran.items()):
        ops = (op for op, where in split.placement.device_of.items() if where == device)
        expected_ns = sum(alone_ns.get(op, 0) for op in ops)
        if expected_ns:
            told.append(f"{intervals_length(merged_intervals(spans)) / expected_ns:.2f}x")
    return " and ".join(told)


def main() -> None:
    """Print what comes out for some recordings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    for path in parser.parse_args().recordings:
        for line in _lines(Recording.load(path)):
            print(line)


if __name__ == "__main__":
    main()
