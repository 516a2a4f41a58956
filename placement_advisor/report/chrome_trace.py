"""A schedule as a trace that chrome://tracing and Perfetto show.

Every device is a process with a row for its ops and one for its copy work. Links are a process of
their own with a row each; copies that overlap on one link, as their latencies do, take further
rows. An arrow leads from the op that makes a tensor over its copy to each op that reads it there.

Left out: memory, and why a device is idle.

Source: Trace Event Format, Google, 2016.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any

from placement_advisor.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.schedule import Schedule, Transfer

    Event = dict[str, Any]
    # Process and thread.
    Row = tuple[int, int]

_OPS, _COPY_WORK = 1, 2


def chrome_trace(graph: OpGraph, schedule: Schedule) -> dict[str, Any]:
    """Return the content of a trace file; times in it are microseconds. Equal for equal steps."""
    process = {device: number for number, device in enumerate(schedule.compute_ns, start=1)}
    rows = _link_rows(schedule.transfers, process=len(process) + 1)
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [
            *_names(process, rows),
            *_ops(graph, schedule, process),
            *_copy_work(schedule.transfers, process),
            *_copies(schedule.transfers, rows),
            *_arrows(graph, schedule, process, rows),
        ],
    }


def _link_rows(transfers: Sequence[Transfer], *, process: int) -> dict[int, tuple[Row, str]]:
    """Return the row of each transfer, by its place, and the row's name."""
    # By link, until when each of its rows is taken.
    taken_ns: dict[str, list[int]] = {}
    thread: dict[tuple[str, int], int] = {}
    rows = {}
    for place, copy in enumerate(transfers):
        link = f"{copy.source} → {copy.target}"
        lanes = taken_ns.setdefault(link, [])
        free = (lane for lane, until_ns in enumerate(lanes) if until_ns <= copy.start_ns)
        lane = next(free, len(lanes))
        lanes[lane:] = [copy.end_ns, *lanes[lane + 1 :]]
        number = thread.setdefault((link, lane), len(thread) + 1)
        rows[place] = (process, number), link if lane == 0 else f"{link} ({lane + 1})"
    return rows


def _names(process: dict[str, int], rows: dict[int, tuple[Row, str]]) -> Iterator[Event]:
    for device, number in process.items():
        yield _name("process", (number, 0), device)
        yield _name("thread", (number, _OPS), "ops")
        yield _name("thread", (number, _COPY_WORK), "copy work")
    if rows:
        yield _name("process", (len(process) + 1, 0), "links")
    for row, name in dict.fromkeys(rows.values()):
        yield _name("thread", row, name)


def _ops(graph: OpGraph, schedule: Schedule, process: dict[str, int]) -> Iterator[Event]:
    for run in schedule.runs:
        op = graph.op(run.op)
        facts: dict[str, Any] = {"kind": op.kind, "ready_us": _us(run.ready_ns)}
        if op.layer is not None:
            facts["layer"] = op.layer
        row = (process[run.device], _OPS)
        yield _slice(run.op, op.role.value, row, run.start_ns, run.end_ns, facts)


def _copy_work(transfers: Sequence[Transfer], process: dict[str, int]) -> Iterator[Event]:
    for copy in transfers:
        ends = (
            ("send", copy.source, copy.send_work, copy.target),
            ("receive", copy.target, copy.receive_work, copy.source),
        )
        for what, device, (start_ns, end_ns), other in ends:
            if end_ns > start_ns:
                row = (process[device], _COPY_WORK)
                facts = {"bytes": copy.size_bytes, "other_end": other}
                yield _slice(f"{what} {copy.tensor}", "copy work", row, start_ns, end_ns, facts)


def _copies(transfers: Sequence[Transfer], rows: dict[int, tuple[Row, str]]) -> Iterator[Event]:
    for place, copy in enumerate(transfers):
        facts = {
            "bytes": copy.size_bytes,
            "queued_us": _us(copy.queued_ns),
            "held_us": _us(copy.held_ns),
        }
        yield _slice(copy.tensor, "copy", rows[place][0], copy.start_ns, copy.end_ns, facts)


def _arrows(
    graph: OpGraph,
    schedule: Schedule,
    process: dict[str, int],
    rows: dict[int, tuple[Row, str]],
) -> Iterator[Event]:
    run_of = {run.op: run for run in schedule.runs}
    readers: defaultdict[tuple[str, int, str], dict[str, None]] = defaultdict(dict)
    for edge in graph.edges:
        if edge.producer in run_of and edge.consumer in run_of:
            readers[edge.producer, edge.port, run_of[edge.consumer].device][edge.consumer] = None
    numbers = count(1)
    for place, copy in enumerate(schedule.transfers):
        made = run_of[copy.producer]
        for name in readers[copy.producer, copy.port, copy.target]:
            read = run_of[name]
            points = (
                ("s", (process[made.device], _OPS), made.start_ns),
                ("t", rows[place][0], copy.start_ns),
                ("f", (process[read.device], _OPS), read.start_ns),
            )
            number = next(numbers)
            for phase, (pid, tid), time_ns in points:
                event = {"ph": phase, "id": number, "name": copy.tensor, "cat": "data flow"}
                event |= {"pid": pid, "tid": tid, "ts": _us(time_ns)}
                # A point belongs to the slice that it lies in.
                yield event | ({"bp": "e"} if phase == "f" else {})


def _slice(
    name: str, category: str, row: Row, start_ns: int, end_ns: int, facts: dict[str, Any]
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": row[0],
        "tid": row[1],
        "ts": _us(start_ns),
        "dur": _us(end_ns - start_ns),
        "args": facts,
    }


def _name(what: str, row: Row, name: str) -> Event:
    pid, tid = row
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _us(time_ns: int) -> float:
    return time_ns / NS_PER_US
