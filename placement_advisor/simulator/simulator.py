"""A discrete-event simulator runs one placed step on a cluster.

A device runs one op at a time, without preemption, in the order in which ops become ready. Those
that one event makes ready queue by the port that they waited for, then in graph order. Every op
that has a cost also pays the launch overhead of its device.
"""

from __future__ import annotations

from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.simulator import schedule as schedules
from placement_advisor.simulator.arrays import (
    UNKNOWN,
    GraphArrays,
    LinkArrays,
    PlaceArrays,
    ScheduleArrays,
    Step,
    check_time_overflow,
    repeated,
)
from placement_advisor.simulator.memory import Constants, peaks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.arrays import Repetition, Result
    from placement_advisor.simulator.schedule import Peaks

    Ints = NDArray[np.int64]


class Simulator:
    """A graph on a cluster, ready to be simulated under any placement."""

    def __init__(
        self,
        graph: OpGraph,
        costs: Mapping[str, CostTable],
        cluster: Cluster,
        *,
        collective_of: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take the cost of every op on every device and host of the cluster, by its name.

        ``collective_of`` has the collective of each op that is one of its hops, or begins it.

        Raises:
            AdvisorError: times add up to more than 64 bits hold.
        """
        self._graph, self._collective_of = graph, collective_of
        self._constants = Constants(graph)
        self._arrays = GraphArrays(graph)
        self._cluster = cluster
        self._places = PlaceArrays(self._arrays, costs, cluster)
        self._links = LinkArrays(self._arrays, cluster, self._places.index)
        self._check_horizon()

    def on(self, cluster: Cluster) -> Simulator:
        """Return the same graph with the same costs on another cluster of the same devices.

        Launch overheads, links and how steps are driven may differ.

        Raises:
            ValueError: the cluster has other devices or hosts, of other kinds, or in another order.
            AdvisorError: times add up to more than 64 bits hold.
        """
        other = copy(self)
        other._cluster = cluster
        other._places = self._places.on(cluster)
        other._links = LinkArrays(self._arrays, cluster, self._places.index)
        other._check_horizon()
        return other

    def scaled_at(self, place: str, factor: float) -> Simulator:
        """Return the same graph whose ops take ``factor`` times as long at one place.

        For an `outline`, which checks that 64 bits hold the times.
        """
        other = copy(self)
        other._places = self._places.scaled_at(place, factor)
        return other

    def resized(self, ops: Sequence[Op], cost_ns: Mapping[str, Ints]) -> Simulator:
        """Return the same graph, whose ops have other sizes and costs, on the same cluster.

        ``ops`` has one in place of each of `ops`; their names do not matter. ``cost_ns`` has what
        each takes at each place, by its name, -1 for what has no cost there. For an `outline`,
        which checks that 64 bits hold the times.
        """
        other = copy(self)
        other._arrays = self._arrays.resized(ops)
        other._places = self._places.resized(ops, cost_ns)
        other._links = LinkArrays(other._arrays, self._cluster, self._places.index)
        return other

    @property
    def graph(self) -> OpGraph:
        """What is simulated."""
        return self._graph

    @property
    def cluster(self) -> Cluster:
        """What the graph is on."""
        return self._cluster

    @property
    def arrays(self) -> tuple[GraphArrays, PlaceArrays, LinkArrays]:
        """What the event loop is given of the graph, its costs and the cluster."""
        return self._arrays, self._places, self._links

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that are placed, in graph order."""
        return self._arrays.ops

    def step_ns(self, placement: Placement) -> int:
        """Return how long the step takes; see `schedule`."""
        return self.placed_step_ns(self.places_of(placement))

    def places_of(self, placement: Placement) -> Ints:
        """Return where each op runs, by the number of its device: hosts come after devices.

        Raises:
            PlacementError: the placement does not fit the graph and the devices.
        """
        return self._places.of(self.devices_of(placement))

    def devices_of(self, placement: Placement) -> Ints:
        """Return the number of the device that each op is placed on, wherever it runs.

        Raises:
            PlacementError: the placement does not fit the graph and the devices.
        """
        placement.check(self._graph, self._cluster.place_names())
        return self._places.devices(placement)

    def step_ns_at(self, device: Ints) -> int:
        """Return how long the step takes, given the number of each op's device.

        For searches: whether the placement fits graph and devices is not checked.
        """
        return self.placed_step_ns(self._places.of(device))

    def chain_at(self, device: Ints) -> Ints:
        """Return which ops the end of the step waits for one after the other, the last one first.

        Takes the number of each op's device and returns numbers of ops; for searches, as
        `step_ns_at`. Copies, and copy work that kept a device from an op, are left out.
        """
        from placement_advisor.simulator.event_loop import waiting_chain

        return waiting_chain(*self._run(self._places.of(device))).astype(np.int64)

    def most_ns(self) -> list[int]:
        """Return what each of ``ops`` takes where it is slowest, launch overhead included."""
        return self._places.most_ns()

    def placed_step_ns(self, place: Ints) -> int:
        """Return how long the step takes where `places_of` says, on this or a like simulator.

        Raises:
            PlacementError: a tensor crosses between devices without a link.
            ValueError: an op has no cost.
        """
        return self._step_ns(*self._run(place))

    def schedule(self, placement: Placement) -> schedules.Schedule:
        """Return the schedule of one step; equal arguments give equal schedules.

        ``Schedule.compute_ns`` sums what ops take, without launch overheads and copy work, as a
        profile does; ``step_ns`` is the time from the call of the step to its return.

        Raises:
            PlacementError: the placement does not fit the graph and the devices, or a tensor
                crosses between devices without a link.
            ValueError: an op has no cost; only constants, variables and inputs may lack one.
        """
        place = self.places_of(placement)
        step, result = self._run(place)
        names = [device.name for device in self._places.places]
        _, start_ns, end_ns = result.op_ns.T
        is_ahead = self._places.is_ahead[place]
        in_ops_ns = end_ns - start_ns - np.where(is_ahead, 0, self._places.launch_ns(place))
        compute_ns = np.zeros(len(names))
        np.add.at(compute_ns, place, in_ops_ns)
        runs, transfers = self._runs(result, place, names), self._transfers(result, names)
        return schedules.Schedule(
            label=placement.label,
            runs=runs,
            transfers=transfers,
            step_ns=self._step_ns(step, result),
            compute_ns={name: int(time) for name, time in zip(names, compute_ns, strict=True)},
            exposed_by_device=schedules.exposed_by_device(
                runs, schedules.copy_intervals(transfers), names
            ),
            peak_memory=self._peaks(step, result, place),
        )

    def peaks_at(self, device: Ints) -> Peaks:
        """Return the peaks of memory, given the number of each op's device; as `step_ns_at`."""
        place = self._places.of(device)
        return self._peaks(*self._run(place), place)

    def _peaks(self, step: Step, result: Result, place: Ints) -> Peaks:
        arrays = self._schedule_arrays(step, result, np.arange(len(place)), place)
        return peaks(arrays, self._graph, self._constants)

    def outline(self, device: Ints, repetition: Repetition | None = None) -> ScheduleArrays:
        """Return one step in numbers; with a ``repetition``, of the graph with all copies.

        ``device`` is that of each op of the graph, as `devices_of` has it.

        Raises:
            PlacementError: a tensor crosses between devices without a link.
            AdvisorError: times of all copies add up to more than 64 bits hold.
            ValueError: an op has no cost.
        """
        simulator, op, place = self._outlined(device, repetition)
        return simulator._schedule_arrays(*simulator._run(place), op, place)

    def _schedule_arrays(self, step: Step, result: Result, op: Ints, place: Ints) -> ScheduleArrays:
        tensor, source, target, _, start_ns, _, end_ns = result.crossings.T
        wires, arrays = self._links.wires, self._arrays
        kind = wires.kind[source * len(self._places.places) + target]
        return ScheduleArrays(
            step_ns=self._step_ns(step, result),
            places=tuple(each.name for each in self._places.places),
            op=op,
            place=place,
            run_ns=result.op_ns[:, 1:],
            arrays=arrays,
            copied=tensor,
            source=source,
            target=target,
            unpacked_ns=wires.receive_ns[kind, arrays.size[tensor]],
            copy_ns=np.column_stack([start_ns, end_ns]),
            copy_bytes=arrays.size_bytes[tensor],
        )

    def outlined_step_ns(self, device: Ints, repetition: Repetition | None = None) -> int:
        """Return how long the step of an `outline` takes."""
        simulator, _, place = self._outlined(device, repetition)
        return simulator.placed_step_ns(place)

    def _outlined(
        self, device: Ints, repetition: Repetition | None
    ) -> tuple[Simulator, Ints, Ints]:
        """Return the graph with all copies, the op that each is a copy of, and where it runs."""
        other, op = self, np.arange(len(self.ops))
        if repetition is not None:
            other, op, device = copy(self), repetition.source, repetition.devices(device)
            other._arrays = repeated(self._arrays, repetition)
            other._places = self._places.repeated(op)
            other._links = LinkArrays(other._arrays, self._cluster, self._places.index)
        other._check_horizon()
        return other, op, other._places.of(device)

    def _check_horizon(self) -> None:
        check_time_overflow(self._arrays, self._places, self._links, self._cluster.dispatch)

    def _run(self, place: Ints) -> tuple[Step, Result]:
        # Compiled code takes a second to load; who does not simulate does not wait for it.
        from placement_advisor.simulator import event_loop

        in_use = np.bincount(place)[: len(self._cluster.devices)] > 0
        is_split = bool(np.count_nonzero(in_use) > 1)
        arrays, dispatch = self._arrays, self._cluster.dispatch
        duration_ns, beside_ns = self._places.durations_ns(place, is_split=is_split)
        step = Step(
            tensor_start=arrays.tensor_start,
            reader_start=arrays.reader_start,
            reader=arrays.reader,
            size=arrays.size,
            missing=arrays.missing,
            device=place.astype(np.uint32),
            duration_ns=duration_ns,
            beside_ns=beside_ns,
            launch_ns=self._places.launch_ns(place),
            is_ahead=self._places.is_ahead,
        )
        # The first device starts all further ones in use.
        begin_ns = self._places.start_ns.copy()
        begin_ns[0] = dispatch.partition_overhead_ns * np.count_nonzero(in_use[1:])
        result: Result = event_loop.run(
            step, self._links.wires, begin_ns, dispatch.quantum_ns, dispatch.asleep_ns
        )
        self._check_links(result)
        return step, result

    def _step_ns(self, step: Step, result: Result) -> int:
        end_ns = np.where(result.last_end_ns < 0, 0, result.last_end_ns + self._places.end_ns)
        last_ns: int = end_ns.max(initial=0).item()
        return last_ns + self._lost_ns(step, result) + self._cluster.dispatch.step_overhead_ns

    def _lost_ns(self, step: Step, result: Result) -> int:
        """Return what the step loses to exchanges that kernels run beside; see `Sharing`."""
        loss = self._cluster.sharing.exchange_loss
        if not loss or not step.is_ahead.any():
            return 0
        from placement_advisor.simulator.event_loop import beside_kernels_ns

        moves_bytes = self._arrays.size_bytes > 0
        return round(loss * beside_kernels_ns(step, result, moves_bytes, self._places.is_joint))

    def _check_links(self, result: Result) -> None:
        if not self._links.absent.any():
            return
        count = len(self._places.places)
        _, source, target, *_ = result.crossings.T
        link = source * count + target
        for absent in link[self._links.absent[link]]:
            ends = (self._places.places[i].name for i in divmod(int(absent), count))
            self._cluster.link(*ends)

    def _runs(self, result: Result, place: Ints, names: list[str]) -> tuple[schedules.OpRun, ...]:
        """Return the runs in the order in which they started."""
        ready, start, end = (column.tolist() for column in result.op_ns.T)
        told = result.told_ns.tolist()
        is_ahead = self._places.is_ahead[place].tolist()
        launch_ns = self._places.launch_ns(place).tolist()
        where = [names[i] for i in place]
        ops = self._arrays.ops
        # Launched is not started: what one device launched may wait for its kernels.
        order = np.argsort(result.op_ns[result.started, 1], kind="stable")
        return tuple(
            schedules.OpRun(
                op=ops[i].name,
                device=where[i],
                ready_ns=ready[i],
                start_ns=start[i],
                end_ns=end[i],
                launch=(told[i] - launch_ns[i], told[i]) if is_ahead[i] else None,
            )
            for i in result.started[order].tolist()
        )

    def _transfers(self, result: Result, names: list[str]) -> tuple[schedules.Transfer, ...]:
        """Return the transfers by start, then in the order in which their tensors were made."""
        _, _, _, _, start_ns, *_ = result.crossings.T
        order = np.argsort(start_ns, kind="stable")
        tensor, source, target, sent_ns, start_ns, arrival_ns, end_ns = result.crossings[order].T
        wires, arrays = self._links.wires, self._arrays
        priced = wires.kind[source * len(names) + target], arrays.size[tensor]
        receive_ns = wires.receive_ns[priced]
        columns = {
            "port": arrays.port[tensor],
            "start_ns": start_ns,
            "end_ns": end_ns,
            "queued_ns": start_ns - sent_ns,
            "held_ns": end_ns - receive_ns - arrival_ns,
            "send_work_ns": wires.send_ns[priced],
            "receive_work_ns": receive_ns,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        producers = (arrays.ops[i].name for i in arrays.producer[tensor].tolist())
        sizes = arrays.size_bytes[tensor].tolist()
        return tuple(
            schedules.Transfer(
                producer=producer,
                source=names[here],
                target=names[there],
                size_bytes=None if size == UNKNOWN else size,
                collective=self._collective_of.get(producer),
                **dict(zip(columns, row, strict=True)),
            )
            for producer, here, there, size, row in zip(
                producers, source.tolist(), target.tolist(), sizes, rows, strict=True
            )
        )
