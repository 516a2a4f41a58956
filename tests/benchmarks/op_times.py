"""How much longer ops take in splits than on one device, by what they draw from memory.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/op_times.py RECORDING…

Recordings are those of `record_runs`. Counted is every run of an op in a split that had its device
to itself, against the median of such runs in the profile of one device. Runs are told apart by how
long that median is, by how many bytes the op moves in each ns of it, and by whether the other
device ran an op meanwhile. *Together* is the sum of times over the sum of medians; it has runs in
it that something else interrupted, which the median has not.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from record_runs import ELSEWHERE, Recording

from placement_advisor.defaults import BASELINE
from placement_advisor.profile.device_trace import Spans, union_of_spans
from placement_advisor.profile.xplane import read_planes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.profile.xplane import Event

# Shorter ops are timed by what surrounds them.
_SHORTEST_NS = 20_000
_DURATIONS_NS = (_SHORTEST_NS, 100_000, 500_000, np.inf)
_BYTES_PER_NS = (0, 2, 10, np.inf)
_NOT_OPS = ("ExecutorState", "ThreadpoolListener", "RunStep", "RunGraph", "SendTensor")
_NOT_KINDS = ("_Send", "_Recv", "_HostSend", "_HostRecv")
# What little of the other device's time still counts as none, and what as all of it.
_LITTLE, _MOST = 0.1, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run of an op: what it took alone, what here, and for which share the other device ran."""

    alone_ns: float
    here_ns: int
    bytes_per_ns: float
    beside: float


def runs(recording: Recording) -> Iterator[Ran]:
    """Yield the runs of a recording's splits."""
    moved = {op.name: op.bytes_accessed or 0 for op in recording.traced.graph.ops}
    alone: dict[str, list[int]] = defaultdict(list)
    for events in _ops(recording.splits[BASELINE].files).values():
        for event in _to_themselves(events):
            alone[_op(event)].append(event.duration_ns)
    alone_ns = {op: median(times) for op, times in alone.items()}
    for label, split in recording.splits.items():
        if label in (BASELINE, ELSEWHERE):
            continue
        by_device = _ops(split.files)
        for device, events in by_device.items():
            others = union_of_spans(
                _spans(found) for other, found in by_device.items() if other != device
            )
            for event in _to_themselves(events):
                expected_ns = alone_ns.get(_op(event), 0)
                if expected_ns >= _SHORTEST_NS:
                    yield Ran(
                        alone_ns=expected_ns,
                        here_ns=event.duration_ns,
                        bytes_per_ns=moved.get(_op(event), 0) / expected_ns,
                        beside=_share(others, event),
                    )


def _ops(files: dict[str, bytes]) -> dict[str, list[Event]]:
    """Return the runs of ops on each device, in order."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for device, content in files.items():
            path = Path(folder) / f"{len(found)}.xplane.pb"
            path.write_bytes(content)
            events = [e for plane in read_planes(path) for line in plane.lines for e in line.events]
            found[device] = sorted(filter(_is_op, events), key=lambda event: event.start_ns)
    return found


def _is_op(event: Event) -> bool:
    name, colon, kind = event.name.partition(":")
    return bool(colon) and not name.startswith(_NOT_OPS) and kind not in _NOT_KINDS


def _op(event: Event) -> str:
    return event.name.partition(":")[0]


def _to_themselves(events: Sequence[Event]) -> Iterator[Event]:
    """Yield those that no other one overlaps."""
    last_end_ns = 0
    for event, following in zip_longest(events, events[1:]):
        if last_end_ns <= event.start_ns and (not following or following.start_ns >= event.end_ns):
            yield event
        last_end_ns = max(last_end_ns, event.end_ns)


def _spans(events: Sequence[Event]) -> Spans:
    return Spans(
        np.array([event.start_ns for event in events], np.int64),
        np.array([event.end_ns for event in events], np.int64),
    )


def _share(others: Spans, event: Event) -> float:
    """Return in how much of an event's time others ran."""
    overlap = np.minimum(others.end, event.end_ns) - np.maximum(others.start, event.start_ns)
    return float(np.maximum(overlap, 0).sum() / max(1, event.duration_ns))


def _print(found: Sequence[Ran]) -> None:
    print(
        f"{'alone':<16}{'bytes per ns':<14}{'other device':<14}"
        f"{'runs':>8}{'median':>8}{'together':>10}"
    )
    for shortest, longest in pairwise(_DURATIONS_NS):
        for least, most in pairwise(_BYTES_PER_NS):
            alike = [
                ran
                for ran in found
                if shortest <= ran.alone_ns < longest and least <= ran.bytes_per_ns < most
            ]
            for words, of in (
                ("idle", [ran for ran in alike if ran.beside <= _LITTLE]),
                ("runs ops", [ran for ran in alike if ran.beside >= _MOST]),
            ):
                if of:
                    together = sum(ran.here_ns for ran in of) / sum(ran.alone_ns for ran in of)
                    print(
                        f"{f'{shortest / 1e3:g}-{longest / 1e3:g} µs':<16}"
                        f"{f'{least:g}-{most:g}':<14}{words:<14}{len(of):>8}"
                        f"{median(ran.here_ns / ran.alone_ns for ran in of):>8.2f}{together:>10.2f}"
                    )
    idle = [ran.here_ns / ran.alone_ns for ran in found if ran.beside <= _LITTLE]
    print(f"all, while the other device is idle: {len(idle)} runs, median {median(idle):.3f}")


def main() -> None:
    """Print what comes out for some recordings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    paths = parser.parse_args().recordings
    _print([ran for path in paths for ran in runs(Recording.load(path))])


if __name__ == "__main__":
    main()
