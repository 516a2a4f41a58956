"""The event loop takes graph, costs and cluster as arrays, and returns a schedule as arrays.

What does not depend on the placement is made once, so that one graph can be simulated under
many placements. Constants are left out: they are on every device and are never copied. Where
many equal devices share a step, a graph holds the ops of one of them; arrays of the others
are repeated from those. A bound on the length of every schedule guards against overflow of 64
bits.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import MAX_NS
from placement_advisor.graph.op import CONTROL_PORT, COST_FREE_ROLES, Op
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device, Dispatch, Link

    Ints = NDArray[np.int64]
    Indices = NDArray[np.uint32]
    Flags = NDArray[np.bool_]


# Arrays of integers have no None.
UNKNOWN = -1


class Step(NamedTuple):
    """A placed step: op ``i`` makes the tensors from ``tensor_start[i]`` up to that of ``i + 1``.

    The readers of tensor ``t`` are the ops ``reader[reader_start[t]:reader_start[t + 1]]``;
    ``size`` numbers its size among those that `Wires` has times for. ``missing`` counts the inputs
    of each op, which takes ``duration_ns``, or ``beside_ns`` if another device runs an op when it
    starts. ``is_ahead`` says of each device whether it launches ahead, which takes ``launch_ns``
    for an op.
    """

    tensor_start: Indices
    reader_start: Indices
    reader: Indices
    size: Indices
    missing: Indices
    device: Indices
    duration_ns: Ints
    beside_ns: Ints
    launch_ns: Ints
    is_ahead: Flags


class Wires(NamedTuple):
    """Links by ``source * devices + target``; ``channel`` numbers the wires they queue for.

    Links of one ``kind`` are equally fast. Row ``k`` of each table has the times of kind ``k`` for
    tensors of each size: on the wire, in which nobody else is on it, of work for the sender, and of
    work for the receiver.
    ``request_ns`` is how long targets' requests take, 0 where tensors wait for none, ``wake_ns``
    how much longer a target that is asleep works at what comes; one that has rested for less than
    ``asleep_ns`` does so for that share of it.
    """

    kind: Indices
    channel: Indices
    latency_ns: Ints
    request_ns: Ints
    wake_ns: Ints
    bytes_ns: Ints
    wire_ns: Ints
    send_ns: Ints
    receive_ns: Ints


class Result(NamedTuple):
    """When everything happened.

    A row of ``op_ns`` is when an op was ready, started and ended. ``told_ns`` is when readers on
    the device were told of an op that was launched ahead; it is empty where none is. ``started``
    holds ops in the order in which they were started or launched. A row of ``crossings`` is one of
    them: tensor, source, target, and when it was sent, started on its wire, arrived, and had been
    received by its target. ``last_end_ns`` is when each device ended its last op, -1 if it had
    none.
    """

    op_ns: Ints
    told_ns: Ints
    started: Indices
    crossings: Ints
    last_end_ns: Ints


class GraphArrays:
    """The ops that run, in graph order, and the tensors that each of them makes.

    Tensors of one op stand in the order of their ports, its control signal last. Sizes that are
    unknown are -1; a control signal has none.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        ops = graph.placed_ops
        number = {op.name: i for i, op in enumerate(ops)}
        edges = [e for e in graph.edges if e.producer in number and e.consumer in number]
        producer = np.array([number[edge.producer] for edge in edges], np.int64)
        consumer = np.array([number[edge.consumer] for edge in edges], np.int64)
        port = np.array([edge.port for edge in edges], np.int64)
        sizes = [
            0 if edge.is_control else UNKNOWN if edge.size_bytes is None else edge.size_bytes
            for edge in edges
        ]
        self._set_edges(ops, producer, consumer, port, np.array(sizes, np.int64))

    def with_edges(
        self, *, ops: tuple[Op, ...], producer: Ints, consumer: Ints, port: Ints, size_bytes: Ints
    ) -> GraphArrays:
        """Return the arrays for other ops, and for edges between them by number."""
        other = copy(self)
        other._set_edges(ops, producer, consumer, port, size_bytes)
        return other

    def resized(self, ops: Sequence[Op]) -> GraphArrays:
        """Return the arrays with the sizes of other ops, by number."""
        made = zip(self.producer.tolist(), self.port.tolist(), strict=True)
        sizes = [
            0 if port == CONTROL_PORT else ops[producer].output_bytes[port]
            for producer, port in made
        ]
        known = [UNKNOWN if size is None else size for size in sizes]
        other = copy(self)
        other._set_sizes(np.array(known, np.int64))
        return other

    def _set_edges(
        self, ops: tuple[Op, ...], producer: Ints, consumer: Ints, port: Ints, size_bytes: Ints
    ) -> None:
        self.ops = ops
        order = np.lexsort((consumer, port, port < 0, producer))
        producer, consumer, port = producer[order], consumer[order], port[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (producer[1:] != producer[:-1]) | (port[1:] != port[:-1])
        first = np.flatnonzero(is_first)
        self.producer, self.port = producer[first], port[first]
        self._set_sizes(size_bytes[order][first])
        self.tensor_start = np.searchsorted(self.producer, np.arange(len(ops) + 1)).astype(
            np.uint32
        )
        self.reader_start = np.append(first, len(order)).astype(np.uint32)
        self.reader = consumer.astype(np.uint32)
        self.missing = np.bincount(consumer, minlength=len(ops)).astype(np.uint32)

    @property
    def readers(self) -> Ints:
        """How many ops read each tensor."""
        counts: Ints = self.reader_start[1:].astype(np.int64) - self.reader_start[:-1]
        return counts

    def _set_sizes(self, size_bytes: Ints) -> None:
        self.size_bytes = size_bytes
        # Tensors share few sizes; what is unknown is priced as nothing.
        self.sizes, size = np.unique(np.maximum(size_bytes, 0), return_inverse=True)
        self.size = size.astype(np.uint32)


class PlaceArrays:
    """Where ops can run, and what each costs there: devices first, then hosts.

    ``start_ns`` is when each begins, ``end_ns`` how long after its end that is known.
    """

    def __init__(
        self, arrays: GraphArrays, costs: Mapping[str, CostTable], cluster: Cluster
    ) -> None:
        self._ops = arrays.ops
        self._set_cluster(cluster)
        self.index = {place.name: i for i, place in enumerate(self.places)}
        kinds = {device.kind for device in cluster.devices if device.host is not None}
        bound = {kind: arrays.graph.host_bound(kind) for kind in kinds}
        # By place, all ops of one after those of another: where each op runs that is placed there.
        self.runs_at = np.concatenate([self._with_host(place, bound) for place in self.places])
        columns: dict[int, Ints] = {}
        for place in self.places:
            table = costs[place.name]
            if id(table) not in columns:
                columns[id(table)] = np.array(
                    [_cost_ns(table, op.name) for op in self._ops], np.int64
                )
        rows = [columns[id(costs[place.name])] for place in self.places]
        self.cost_ns = np.array(rows, np.int64).reshape(len(self.places), len(self._ops))
        self._bytes = np.array([op.bytes_accessed or 0 for op in self._ops], np.float64)
        # Of hosts, the place of collectives alone is a GPU.
        hosts = enumerate(self.places, start=-len(cluster.devices))
        self.is_joint = np.array([i >= 0 and place.kind == "GPU" for i, place in hosts], bool)
        self._needs_cost = np.array([op.role not in COST_FREE_ROLES for op in self._ops], bool)
        self._lacks_cost = (self.cost_ns == UNKNOWN) & self._needs_cost
        self._may_lack_cost = self._lacks_cost.any()
        # By op that is simulated: what has its figures.
        self._number = np.arange(len(self._ops))
        self._set_durations()

    def _set_cluster(self, cluster: Cluster) -> None:
        self.places, self._sharing = cluster.places(), cluster.sharing
        # The first device and hosts have none; when that begins depends on how many others do.
        self.start_ns, self.end_ns = np.zeros((2, len(self.places)), np.int64)
        for i, device in enumerate(cluster.devices[1:], start=1):
            self.start_ns[i] = _held(cluster.remote_start_ns(device))
            self.end_ns[i] = _held(cluster.remote_end_ns(device))

    def on(self, cluster: Cluster) -> PlaceArrays:
        """Return the arrays for other launch overheads of the same devices and hosts.

        Raises:
            ValueError: they are others.
        """
        other = copy(self)
        other._set_cluster(cluster)
        ours, theirs = (
            [(place.name, place.kind, place.host) for place in places]
            for places in (self.places, other.places)
        )
        if ours != theirs:
            raise ValueError(f"the devices are {ours}, not {theirs}")
        other._set_durations()
        return other

    def scaled_at(self, place: str, factor: float) -> PlaceArrays:
        """Return the arrays with the known costs at one place multiplied."""
        row = self.index[place]
        other = copy(self)
        other.cost_ns = self.cost_ns.copy()
        known = other.cost_ns[row] != UNKNOWN
        other.cost_ns[row, known] = _held_whole(other.cost_ns[row, known] * factor)
        other._set_durations()
        return other

    def resized(self, ops: Sequence[Op], cost_ns: Mapping[str, Ints]) -> PlaceArrays:
        """Return the arrays for other ops, by number, with their cost at each place by its name."""
        other = copy(self)
        other.cost_ns = np.array([cost_ns[place.name] for place in self.places], np.int64)
        other._bytes = np.array([op.bytes_accessed or 0 for op in ops], np.float64)
        other._lacks_cost = (other.cost_ns == UNKNOWN) & self._needs_cost
        other._may_lack_cost = other._lacks_cost.any()
        other._set_durations()
        return other

    def repeated(self, source: Ints) -> PlaceArrays:
        """Return the arrays for copies of ops; ``source`` is the op that each is a copy of."""
        other = copy(self)
        other._number = self._number[source]
        return other

    def _set_durations(self) -> None:
        overhead_ns = np.array([place.launch_overhead_ns for place in self.places], np.int64)
        self.is_ahead = np.array([place.launches_ahead for place in self.places], bool)
        self._launch_ns = np.where(self.cost_ns != UNKNOWN, overhead_ns[:, None], 0)
        cost_ns = np.maximum(self.cost_ns, 0)
        self._duration_ns = cost_ns + np.where(self.is_ahead[:, None], 0, self._launch_ns)
        sharing = self._sharing
        # What launches ahead has a processor and a memory of its own.
        shared_ns = np.where(self.is_ahead[:, None], 0, cost_ns)
        slower_ns = shared_ns * (sharing.split_ratio - 1)
        self._split_ns = self._duration_ns + _held_whole(slower_ns)
        # Of an op's time, what its bytes take at the rate that a device draws alone.
        from_memory_ns = np.minimum(shared_ns, self._bytes * NS_PER_S / sharing.memory_bytes_per_s)
        slower_ns = slower_ns + from_memory_ns * (sharing.memory_ratio - 1)
        self._beside_ns = self._duration_ns + _held_whole(slower_ns)

    def devices(self, placement: Placement) -> Ints:
        """Return the number of the device that each op is placed on."""
        return np.array([self.index[placement.device_of[op.name]] for op in self._ops], np.int64)

    def of(self, device: Ints) -> Ints:
        """Return where each op runs that is placed on the device of that number."""
        place: Ints = self.runs_at.take(self._at(device))
        return place

    def _at(self, place: Ints) -> Ints:
        """Return where the figures of each op at its place are in a table with a row a place."""
        return place * len(self._ops) + self._number

    def launch_ns(self, place: Ints) -> Ints:
        """Return the launch overhead that each op pays at its place; 0 for what has no cost."""
        return self._launch_ns.take(self._at(place))

    def durations_ns(self, place: Ints, *, is_split: bool) -> tuple[Ints, Ints]:
        """Return what each op takes at its place, alone and beside an op of another device.

        Launch overheads are in it where devices do not launch ahead. In a step that ``is_split``
        ops take longer.

        Raises:
            ValueError: an op has no cost there; only variables and inputs may lack one.
        """
        if self._may_lack_cost:
            for i in np.flatnonzero(self._lacks_cost.take(self._at(place))):
                op = self._ops[self._number[i]]
                raise ValueError(f"op {op.name!r} ({op.kind}) has no cost")
        at = self._at(place)
        alone_ns = self._split_ns if is_split else self._duration_ns
        return alone_ns.take(at), self._beside_ns.take(at)

    def most_ns(self) -> list[int]:
        """Return what each op takes at most on the slowest device, launch overhead included."""
        ahead_ns = np.where(self.is_ahead[:, None], self._launch_ns, 0)
        most: list[int] = (self._beside_ns + ahead_ns).max(axis=0, initial=0)[self._number].tolist()
        return most

    def _with_host(self, place: Device, bound: Mapping[str, frozenset[str]]) -> Ints:
        here = self.index[place.name]
        if place.host is None:
            return np.full(len(self._ops), here, np.int64)
        host, ops = self.index[place.host], bound[place.kind]
        return np.array([host if op.name in ops else here for op in self._ops], np.int64)


class LinkArrays:
    """Links by ``source * places + target``, as far as there are any, and their times as arrays."""

    def __init__(self, arrays: GraphArrays, cluster: Cluster, index: Mapping[str, int]) -> None:
        self.absent = ~np.eye(len(index), dtype=bool).ravel()
        channel, kind = np.zeros((2, len(self.absent)), np.uint32)
        channels: dict[str, int] = {}
        kinds: dict[Link, int] = {}
        for link in cluster.links:
            i = index[link.source] * len(index) + index[link.target]
            self.absent[i] = False
            named = link.channel or f"{link.source} → {link.target}"
            channel[i] = channels.setdefault(named, len(channels))
            alike = replace(link, source="", target="", channel=None)
            kind[i] = kinds.setdefault(alike, len(kinds))
        # A crossing without a link is refused after the run, which reads the first row for it.
        rows, sizes = max(1, len(kinds)), arrays.sizes.tolist()

        def each(time_ns: Callable[[Link], int]) -> Ints:
            return np.array([_held(time_ns(link)) for link in kinds] or [0], np.int64)

        def table(time_ns: Callable[[Link, int], int]) -> Ints:
            times_ns = [_held(time_ns(link, size)) for link in kinds for size in sizes]
            return np.resize(np.array(times_ns, np.int64), (rows, len(sizes)))

        self.wires = Wires(
            kind=kind,
            channel=channel,
            latency_ns=each(lambda link: link.latency_ns),
            request_ns=each(lambda link: link.request_ns),
            wake_ns=each(lambda link: link.wake_ns),
            bytes_ns=table(lambda link, size: link.bytes_ns(size)),
            wire_ns=table(lambda link, size: link.wire_ns(size)),
            send_ns=table(lambda link, size: link.sender.time_ns(size)),
            receive_ns=table(lambda link, size: link.receiver.time_ns(size)),
        )

    def most_ns(self) -> list[int]:
        """Return what a tensor of each size takes over the slowest link, with work at both ends."""
        wires = self.wires
        tables = (wires.bytes_ns, wires.send_ns, wires.receive_ns)
        most: list[int] = sum(table.max(axis=0) for table in tables).tolist()
        each_ns = int(wires.latency_ns.max()) + int(wires.wake_ns.max())
        return [time_ns + each_ns for time_ns in most]


def _cost_ns(table: CostTable, name: str) -> int:
    cost = table.costs.get(name)
    return UNKNOWN if cost is None else _held(cost.time_ns)


def _held(time_ns: int) -> int:
    """Return a time, or one that 64 bits hold and that is too long as well; see `horizon`."""
    return min(time_ns, MAX_NS + 1)


def _held_whole(amounts: NDArray[np.floating[Any]]) -> Ints:
    """Return amounts as whole numbers, those that are too large as `_held` does."""
    held: Ints = np.minimum(np.rint(amounts), MAX_NS + 1).astype(np.int64)
    return held


class HeldTensors(NamedTuple):
    """Tensors that someone wants on a place: ``size_bytes`` of each, from when to when."""

    place: Ints
    span_ns: Ints
    size_bytes: Ints


@dataclass(frozen=True, kw_only=True)
class ScheduleArrays:
    """One simulated step.

    Run ``i`` is of op number ``op[i]`` of the graph, constants not counted, on the place number
    ``place[i]`` of ``places``, from ``run_ns[i, 0]`` to ``run_ns[i, 1]``. A copy of ``copy_bytes``
    (-1 if unknown) of the tensor ``copied`` of the ``arrays`` from the place ``source`` to
    ``target`` was under way from ``copy_ns[:, 0]`` to ``[:, 1]``, at whose end the target had
    unpacked it for ``unpacked_ns``.
    """

    step_ns: int
    places: tuple[str, ...]
    op: Ints
    place: Ints
    run_ns: Ints
    arrays: GraphArrays
    copied: Ints
    source: Ints
    target: Ints
    unpacked_ns: Ints
    copy_ns: Ints
    copy_bytes: Ints

    @cached_property
    def held(self) -> HeldTensors:
        """What is wanted where, from when it was made or began to arrive."""
        arrays, places = self.arrays, len(self.places)
        tensors = np.arange(len(arrays.producer))
        end_ns = self.run_ns[:, 1]
        made_ns = end_ns[arrays.producer]
        made_at = tensors * places + self.place[arrays.producer]
        where = np.concatenate([made_at, self.copied * places + self.target])
        span_ns = np.concatenate([np.column_stack([made_ns, made_ns]), self.copy_ns])
        until_ns = span_ns[:, 1]
        np.maximum.at(until_ns, self.copied, self.copy_ns[:, 1])
        order = np.argsort(where)
        wanted = np.repeat(tensors, arrays.readers) * places + self.place[arrays.reader]
        read = order[np.searchsorted(where, wanted, sorter=order)]
        np.maximum.at(until_ns, read, end_ns[arrays.reader])
        size_bytes = np.maximum(arrays.size_bytes, 0)
        return HeldTensors(where % places, span_ns, size_bytes[where // places])


def union_ns(spans_ns: Ints) -> int:
    """Return how long at least one of the spans lasts; a row is a start and an end."""
    if not len(spans_ns):
        return 0
    start_ns, end_ns = spans_ns[np.argsort(spans_ns[:, 0], kind="stable")].T
    until_ns = np.maximum.accumulate(end_ns)
    begun_ns = np.maximum(start_ns[1:], until_ns[:-1])
    further_ns: int = np.maximum(end_ns[1:] - begun_ns, 0).sum().item()
    return int(end_ns[0] - start_ns[0]) + further_ns


def most_at_once(spans_ns: Ints, sizes: Ints) -> int:
    """Return the sum of most ``sizes`` whose spans have a moment in common, their ends included."""
    steps = np.concatenate([sizes, -sizes])
    # At one moment, what begins comes before what ends.
    order = np.lexsort((steps < 0, np.concatenate([spans_ns[:, 0], spans_ns[:, 1]])))
    return int(np.cumsum(steps[order]).max(initial=0))


def check_time_overflow(
    arrays: GraphArrays, places: PlaceArrays, links: LinkArrays, dispatch: Dispatch
) -> None:
    """Check that no schedule can be too long for what counts its nanoseconds.

    Raises:
        AdvisorError: one can; it names what takes longest.
    """
    devices = len(places.places)
    op_ns, size_ns = places.most_ns(), links.most_ns()
    crossing_ns = [(devices - 1) * size_ns[size] for size in arrays.size.tolist()]
    begin_and_end_ns = (
        dispatch.step_overhead_ns
        + devices * dispatch.partition_overhead_ns
        + sum(places.start_ns.tolist())
        + sum(places.end_ns.tolist())
        + max(links.wires.request_ns.tolist())
    )
    whole_ns = sum(op_ns) + sum(crossing_ns) + begin_and_end_ns
    if max(whole_ns, dispatch.quantum_ns) <= MAX_NS:
        return
    longest_op_ns, longest_crossing_ns = max(op_ns, default=0), max(crossing_ns, default=0)
    if longest_op_ns > max(longest_crossing_ns, begin_and_end_ns):
        longest = f"op {arrays.ops[op_ns.index(longest_op_ns)].name!r}"
    elif longest_crossing_ns > begin_and_end_ns:
        tensor = crossing_ns.index(longest_crossing_ns)
        producer = arrays.ops[int(arrays.producer[tensor])].name
        longest = f"copies of output {int(arrays.port[tensor])} of op {producer!r}"
    else:
        longest = "the start and the end of devices"
    raise AdvisorError(
        f"the step may take more than 36 years, most of it for {longest}",
        hint="a time, a size or a bandwidth is in another unit than it seems to be",
    )


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Which ops of a graph there are several ``times``; each has a flag for every op, by number.

    Copies of ``ops`` read those of each other that have the same number, and what is there once.
    Those ``on_next`` are on one device after the other, others all on that of the first copy.
    Copies read one port after the other of what is ``dealt`` out. Copies of an op stand beside each
    other: their order is a topological one, as the graph's is.
    """

    times: int
    ops: Flags
    on_next: Flags
    dealt: Flags

    @cached_property
    def source(self) -> Ints:
        """The op of the graph that each op of the repeated one is a copy of."""
        return np.repeat(np.arange(len(self.ops)), np.where(self.ops, self.times, 1))

    @cached_property
    def number(self) -> Ints:
        """Which copy each op is."""
        number: Ints = np.arange(len(self.source)) - np.searchsorted(self.source, self.source)
        return number

    def devices(self, device: Ints) -> Ints:
        """Return the device of each copy, by that of each op of the graph."""
        of_copy: Ints = device[self.source] + np.where(self.on_next[self.source], self.number, 0)
        return of_copy


def repeated(arrays: GraphArrays, repetition: Repetition) -> GraphArrays:
    """Return the arrays of the graph with all copies."""
    is_repeated, is_dealt = repetition.ops, repetition.dealt
    first = np.flatnonzero(repetition.number == 0)
    tensor = np.repeat(np.arange(len(arrays.producer)), arrays.readers)
    producer, consumer = arrays.producer[tensor], arrays.reader.astype(np.int64)
    times = np.where(is_repeated[producer] | is_repeated[consumer], repetition.times, 1)
    edge = np.repeat(np.arange(len(tensor)), times)
    number = np.arange(len(edge)) - np.searchsorted(edge, edge)
    producer, consumer = producer[edge], consumer[edge]
    port = arrays.port[tensor[edge]]
    is_next = is_dealt[producer] & is_repeated[consumer] & (port != CONTROL_PORT)
    return arrays.with_edges(
        ops=tuple(arrays.ops[source] for source in repetition.source.tolist()),
        producer=first[producer] + np.where(is_repeated[producer], number, 0),
        consumer=first[consumer] + np.where(is_repeated[consumer], number, 0),
        port=port + np.where(is_next, number, 0),
        size_bytes=arrays.size_bytes[tensor[edge]],
    )
