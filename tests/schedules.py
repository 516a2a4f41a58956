"""What holds of every schedule of a placed graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule


def check_schedule(
    schedule: Schedule, graph: OpGraph, placement: Placement, cluster: Cluster
) -> None:
    """Check that it is a schedule of the graph under the placement on the cluster.

    Every op but constants ran once, where it was placed (or on that device's host, if it has
    to) and after its inputs were there; what one device did, copy work included, did not
    overlap; every tensor that another device reads crossed to it once, and nothing else
    crossed.

    Raises:
        ValueError: what is wrong, by name.
    """
    run_of = {run.op: run for run in schedule.runs}
    placed = {op.name for op in graph.ops if op.role is not Role.CONSTANT}
    if run_of.keys() != placed or len(schedule.runs) != len(placed):
        odd = sorted(run_of.keys() ^ placed) or "some op"
        raise ValueError(f"not every op ran exactly once: {odd}")
    _check_places(schedule, graph, placement, cluster)
    _check_devices(schedule)
    transfer_of = {(t.producer, t.port, t.target): t for t in schedule.transfers}
    if len(transfer_of) != len(schedule.transfers):
        raise ValueError("a tensor crossed to one device twice")
    unread = set(transfer_of)
    for edge in graph.edges:
        if not {edge.producer, edge.consumer} <= placed:
            continue
        producer, consumer = run_of[edge.producer], run_of[edge.consumer]
        if consumer.start_ns < producer.end_ns:
            raise ValueError(f"{edge.consumer!r} started before {edge.producer!r} ended")
        # What is launched ahead is launched after the launch of what it reads.
        there_ns = producer.launch[1] if producer.launch else producer.end_ns
        if producer.device != consumer.device:
            key = (edge.producer, edge.port, consumer.device)
            if key not in transfer_of:
                raise ValueError(f"{edge.producer!r}:{edge.port} never reached {key[-1]!r}")
            unread.discard(key)
            transfer = transfer_of[key]
            if not producer.end_ns <= transfer.set_out_ns <= transfer.start_ns:
                raise ValueError(f"{edge.producer!r}:{edge.port} crossed before it was there")
            arrival_ns = transfer.receive_work[0] - transfer.held_ns
            if not transfer.start_ns <= arrival_ns <= transfer.receive_work[0]:
                raise ValueError(f"{edge.producer!r}:{edge.port} was there before it crossed")
            there_ns = transfer.end_ns
        if consumer.ready_ns < there_ns:
            raise ValueError(f"{edge.consumer!r} did not wait for {edge.producer!r}")
    if unread:
        raise ValueError(f"crossed, but nobody reads it there: {sorted(unread)}")


def _check_places(
    schedule: Schedule, graph: OpGraph, placement: Placement, cluster: Cluster
) -> None:
    host_of = {d.name: (d.host, graph.host_bound(d.kind)) for d in cluster.devices if d.host}
    for run in schedule.runs:
        device = placement.device_of[run.op]
        host, bound = host_of.get(device, (None, frozenset()))
        if run.device != (host if run.op in bound else device):
            raise ValueError(f"{run.op!r} ran on {run.device!r}, where it was not placed")
        launch_ns, launched_ns = run.launch or (run.ready_ns, run.ready_ns)
        if not run.ready_ns <= launch_ns <= launched_ns <= run.start_ns <= run.end_ns:
            raise ValueError(f"{run.op!r} started before it was ready, or ended before that")


def _check_devices(schedule: Schedule) -> None:
    # Launches and copy work are the thread's, kernels the device's, where it launches ahead.
    thread = {run.device: f"host of {run.device}" for run in schedule.runs if run.launch}
    work = [(run.device, run.start_ns, run.end_ns, run.op) for run in schedule.runs]
    work += [
        (thread[run.device], *run.launch, f"launching {run.op}")
        for run in schedule.runs
        if run.launch
    ]
    for copy in schedule.transfers:
        if copy.send_work_ns:
            source = thread.get(copy.source, copy.source)
            work.append((source, *copy.send_work, f"sending {copy.producer}"))
        if copy.receive_work_ns:
            target = thread.get(copy.target, copy.target)
            work.append((target, *copy.receive_work, f"receiving {copy.producer}"))
    last_end_ns: dict[str, int] = {}
    for device, start_ns, end_ns, what in sorted(work):
        if start_ns < last_end_ns.get(device, 0):
            raise ValueError(f"{what!r} overlaps another op or copy on {device!r}")
        last_end_ns[device] = end_ns
