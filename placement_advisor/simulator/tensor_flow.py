"""Who reads and who sends each tensor of a scheduled step, in numbers.

Ops are numbered as in their graph, devices as given, others that run ops after them. A tensor is an
output port of an op: its number is that on the first device, and on others that plus the device's.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.events import OpRun, Transfer


class Run(NamedTuple):
    """An op that ran, from when to when."""

    start_ns: int
    end_ns: int
    op: int


class Crossing(NamedTuple):
    """A tensor on its way from device to device; its target takes memory for it at ``taken_ns``."""

    op: int
    port: int
    source: int
    target: int
    size_bytes: int | None
    taken_ns: int
    end_ns: int
    is_unpacked: bool


class StepFlow:
    """The flow of tensors through a step.

    ``runs`` are in the order of their starts. By op: ``reads`` has the tensors that it takes (on
    the first device), ``variables_of`` the variables that it reads or writes, ``transfers_of`` the
    transfers that it feeds. ``users_of`` has the ops that read or write a variable. ``sent`` and
    ``received`` are the tensor of each transfer at its ends. ``awaited`` counts the readers and
    transfers of a tensor where it is, and ``crossing`` has those that go to or come from another
    process.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        devices: int,
        device_of: Sequence[int | None],
        edges: Iterable[tuple[int, int, int]],
        runs: Sequence[Run],
        transfers: Sequence[Crossing],
    ) -> None:
        """Take producer, reader and port of each edge; control signals are left out."""
        edges = list(edges)
        self.ops, self.devices, self.device_of = ops, devices, device_of
        self.runs, self.transfers = runs, transfers
        # A graph may leave out the sizes of ports that its edges leave from.
        edge_ports = 1 + max((port for _, _, port in edges), default=0)
        ports = max(edge_ports, max((len(op.output_bytes) for op in ops), default=0))
        self._op_stride = ports * self.devices
        self.reads: list[list[int]] = [[] for _ in ops]
        self.variables_of: list[list[int]] = [[] for _ in ops]
        self.users_of: defaultdict[int, list[Op]] = defaultdict(list)
        self.awaited: defaultdict[int, int] = defaultdict(int)
        self._follow_edges(edges)
        self.transfers_of: defaultdict[int, list[int]] = defaultdict(list)
        self.sent: list[int] = []
        self.received: list[int] = []
        self.crossing: set[int] = set()
        self._follow_transfers()

    def resized(self, ops: Sequence[Op]) -> StepFlow:
        """Return the same flow of ops that make tensors of other sizes."""
        other = copy(self)
        other.ops = ops
        other.transfers = [
            each._replace(size_bytes=ops[each.op].output_bytes[each.port])
            for each in self.transfers
        ]
        return other

    def tensor(self, op: int, port: int) -> int:
        """Return the number of a tensor on the first device."""
        return op * self._op_stride + port * self.devices

    def producer(self, tensor: int) -> Op:
        """Return the op that makes a tensor, on whichever device it is."""
        return self.ops[tensor // self._op_stride]

    def _follow_edges(self, edges: Iterable[tuple[int, int, int]]) -> None:
        for source, reader, port in edges:
            if self.ops[source].role is Role.VARIABLE:
                self.variables_of[reader].append(source)
                self.users_of[source].append(self.ops[reader])
                continue
            tensor = self.tensor(source, port)
            self.reads[reader].append(tensor)
            device = self.device_of[reader]
            if device is not None:
                self.awaited[tensor + device] += 1

    def _follow_transfers(self) -> None:
        for number, transfer in enumerate(self.transfers):
            tensor = self.tensor(transfer.op, transfer.port)
            sent, received = tensor + transfer.source, tensor + transfer.target
            self.sent.append(sent)
            self.received.append(received)
            self.transfers_of[transfer.op].append(number)
            self.awaited[sent] += 1
            if transfer.is_unpacked:
                self.crossing |= {sent, received}


def flow_of(
    graph: OpGraph,
    runs: Iterable[OpRun],
    transfers: Iterable[Transfer],
    device_index: Mapping[str, int],
) -> StepFlow:
    """Return the flow of a schedule's runs and transfers.

    Of runs that start at one moment, that which is given first comes first.
    """
    op_index = {op.name: i for i, op in enumerate(graph.ops)}
    device_of: list[int | None] = [None] * len(graph)
    numbered = []
    for run in runs:
        number = op_index[run.op]
        device_of[number] = device_index[run.device]
        numbered.append(Run(run.start_ns, run.end_ns, number))
    return StepFlow(
        graph.ops,
        len(device_index),
        device_of,
        (
            (op_index[edge.producer], op_index[edge.consumer], edge.port)
            for edge in graph.edges
            if not edge.is_control
        ),
        sorted(numbered, key=lambda run: run.start_ns),
        [
            Crossing(
                op=op_index[each.producer],
                port=each.port,
                source=device_index[each.source],
                target=device_index[each.target],
                size_bytes=each.size_bytes,
                # What processors move, the target unpacks.
                taken_ns=each.end_ns - each.receive_work_ns
                if each.receive_work_ns
                else each.start_ns,
                end_ns=each.end_ns,
                is_unpacked=each.receive_work_ns > 0,
            )
            for each in transfers
            if not each.is_control
        ],
    )
