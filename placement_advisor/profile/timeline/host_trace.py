"""Processes that compute on their own cores, such as workers on gRPC, as a trace.

An op runs from the start of its event to the end, on whatever thread; a process computes while any
op runs. What `_Send` and `_Recv` do is a copy: it lasts from the start of the send to the moment at
which the receiver goes on, so the way through both processes and the wait for a busy core are part
of it. The profiles say where a copy went by the names of its two nodes, which TensorFlow numbers
one after the other; the tensor is the op that both are named after. A send of few bytes leaves no
event: then the copy starts when that op ended.

A collective op lasts until it has what all others sent; it is no compute.

Left out: bytes, which no profile of a CPU has; the input pipeline's threads; that clocks of several
machines differ.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.spans import Spans, union
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.device_trace import (
    UNKNOWN_BYTES,
    UNKNOWN_END,
    Copied,
    Route,
    Use,
)
from placement_advisor.profile.timeline.process_record import Process, Ran, Sent
from placement_advisor.profile.timeline.step_windows import HOST_PLANE, OP_EVENT
from placement_advisor.profile.timeline.worker_events import (
    ARRIVAL,
    COLLECTIVE_KINDS,
    RECEIVE_KINDS,
    SEND_KINDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.device_trace import TraceBuilder
    from placement_advisor.profile.xspace.space_file import Events, SpaceFile, StoredPlane

    Ints = NDArray[np.int64]

_INPUT_PIPELINE = "tf_data"
_EXECUTING = "ExecutorState::Process"
# What TensorFlow's partitioning calls the two ends of an edge that it cut.
_END_NODE = re.compile(r"(.+?)(?:_S|/_)(\d{1,18})")


def read_process(
    file: SpaceFile, device: str, builder: TraceBuilder, advance: Callable[[int], None]
) -> Process | None:
    """Read the ops and copies of a process into the trace; None if no op ran there."""
    sends: defaultdict[str, list[int]] = defaultdict(list)
    arrivals: defaultdict[str, list[int]] = defaultdict(list)
    parts: list[tuple[Ints, Spans]] = []
    ops: dict[str, int] = {}
    collectives: set[str] = set()
    executing: list[Spans] = []
    uses: defaultdict[Use, list[Spans]] = defaultdict(list)
    for plane in file.planes:
        if plane.name != HOST_PLANE:
            continue
        found = _names(plane)
        for line in plane.lines:
            if line.name.startswith(_INPUT_PIPELINE):
                continue
            events = file.events(
                plane, line, of_named=("name", "kernel_type"), named=found.arrivals
            )
            _gather_arrivals(file, plane, events, arrivals)
            advance(line.place[1] - line.place[0])
            for name, chosen in _groups(events.name):
                start_ns = events.start_ns[chosen]
                spans = Spans(start_ns, start_ns + events.duration_ns[chosen])
                if name in found.sends:
                    sends[found.sends[name]] += spans.start.tolist()
                elif name in found.executing:
                    executing.append(spans)
                elif name in found.ops:
                    op, kind = found.ops[name]
                    place = ops.setdefault(op, len(ops))
                    parts.append((np.full(len(spans.start), place), spans))
                    builder.row(kind, _use(kind)).add_each(spans.end - spans.start)
                    if _use(kind) is Use.COLLECTIVE:
                        collectives.add(op)
                    uses[_use(kind)].append(spans)
    if not parts:
        return None
    builder.device(device)
    for use, spans_of_use in uses.items():
        builder.used(device, use, union(spans_of_use))
    ran = _in_order(tuple(ops), frozenset(collectives), parts)
    return Process(
        device=device,
        ran=ran,
        executing=union([ran.spans, *executing]),
        sends={node: sorted(moments) for node, moments in sends.items()},
        arrivals={node: sorted(moments) for node, moments in arrivals.items()},
    )


def copies_between(
    processes: Sequence[Process], cuts: Sequence[int], builder: TraceBuilder
) -> tuple[Sent, ...]:
    """Join sends with arrivals into copies, add them to the trace, and return them.

    Within a step, which the cuts bound, the first send of a node belongs to its first arrival and
    so on; without steps, all of the profile is one.
    """
    found: list[Sent] = []
    ended = {process.device: _ends_by_op(process.ran) for process in processes}
    for target in processes:
        others = [process for process in processes if process is not target]
        for node, moments in target.arrivals.items():
            match = _END_NODE.fullmatch(node)
            if match is not None:
                number = int(match[2])
                found += _copies_to(target, match[1], number, moments, others, ended, cuts)
    by_route: defaultdict[Route, list[Sent]] = defaultdict(list)
    for sent in found:
        by_route[Route(sent.source, sent.target, CopyKind.WORKER)].append(sent)
    for route, of_route in by_route.items():
        start_ns = np.array([sent.start_ns for sent in of_route], np.int64)
        end_ns = np.array([sent.end_ns for sent in of_route], np.int64)
        copied = Copied(
            spans=Spans(start_ns, end_ns),
            size_bytes=np.full(len(of_route), UNKNOWN_BYTES),
            tensor=np.array([builder.tensor(sent.tensor) for sent in of_route]),
        )
        builder.copies(route, copied)
        builder.row(CopyKind.WORKER, Use.PEER).add_each(end_ns - start_ns)
    return tuple(sorted(found, key=lambda sent: sent.end_ns))


@dataclass(frozen=True, slots=True)
class _Names:
    """What ids of event names stand for: ops with kinds, nodes that send, and so on."""

    ops: dict[int, tuple[str, str]]
    sends: dict[int, str]
    arrivals: frozenset[int]
    executing: frozenset[int]


def _names(plane: StoredPlane) -> _Names:
    ops: dict[int, tuple[str, str]] = {}
    sends: dict[int, str] = {}
    arrivals, executing = set(), set()
    for name, text in plane.event_names.items():
        if text == ARRIVAL:
            arrivals.add(name)
        elif text == _EXECUTING:
            executing.add(name)
        elif match := OP_EVENT.fullmatch(text):
            if match[2] in SEND_KINDS:
                sends[name] = match[1]
            elif match[2] not in RECEIVE_KINDS:
                ops[name] = match[1], match[2]
    return _Names(ops, sends, frozenset(arrivals), frozenset(executing))


def _gather_arrivals(
    file: SpaceFile, plane: StoredPlane, events: Events, arrivals: dict[str, list[int]]
) -> None:
    told: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for event, stat, value in file.values(plane, events):
        told[event][stat] = str(value)
    for event, stats in told.items():
        if stats.get("kernel_type") in RECEIVE_KINDS and "name" in stats:
            arrivals[stats["name"]].append(int(events.start_ns[event]))


def _use(kind: str) -> Use:
    return Use.COLLECTIVE if kind in COLLECTIVE_KINDS else Use.COMPUTE


def _in_order(
    names: tuple[str, ...], collectives: frozenset[str], parts: Sequence[tuple[Ints, Spans]]
) -> Ran:
    start_ns = np.concatenate([spans.start for _, spans in parts])
    order = np.argsort(start_ns, kind="stable")
    return Ran(
        names=names,
        collectives=collectives,
        name=np.concatenate([name for name, _ in parts])[order],
        spans=Spans(start_ns[order], np.concatenate([spans.end for _, spans in parts])[order]),
    )


def _copies_to(
    target: Process,
    tensor: str,
    number: int,
    arrivals: Sequence[int],
    others: Sequence[Process],
    ended: Mapping[str, Mapping[str, Ints]],
    cuts: Sequence[int],
) -> Iterator[Sent]:
    ends = [f"{tensor}{joint}{number - 1}" for joint in ("_S", "/_")]
    source, starts = UNKNOWN_END, list[int]()
    for process in others:
        for end in ends:
            if end in process.sends:
                source, starts = process.device, process.sends[end]
    if source == UNKNOWN_END:
        made = [process.device for process in others if tensor in ended[process.device]]
        if len(made) == 1:
            (source,) = made
            starts = np.sort(ended[source][tensor]).tolist()
        elif len(others) == 1:
            source = others[0].device
    for of_step, sent in zip(_by_step(arrivals, cuts), _by_step(starts, cuts), strict=True):
        for i, arrival_ns in enumerate(of_step):
            start_ns = min(sent[i], arrival_ns) if i < len(sent) else arrival_ns
            yield Sent(
                tensor=tensor,
                source=source,
                target=target.device,
                start_ns=start_ns,
                end_ns=arrival_ns,
            )


def _ends_by_op(ran: Ran) -> dict[str, Ints]:
    return {ran.names[place]: ran.spans.end[chosen] for place, chosen in _groups(ran.name)}


def _groups(names: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each name with the places at which it stands."""
    order = np.argsort(names, kind="stable")
    found, first = np.unique(names[order], return_index=True)
    ends = [*first[1:].tolist(), len(names)]
    for name, start, end in zip(found.tolist(), first.tolist(), ends, strict=False):
        yield name, order[start:end]


def _by_step(moments: Sequence[int], cuts: Sequence[int]) -> list[list[int]]:
    """Return sorted moments by the step that they are in; what is before the first is its own."""
    places = [0, *(bisect_left(moments, cut) for cut in cuts), len(moments)]
    return [list(moments[first:last]) for first, last in pairwise(places)]
