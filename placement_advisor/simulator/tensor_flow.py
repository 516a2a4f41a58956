"""Who reads and who sends each tensor of a scheduled step, in numbers.

Ops are numbered as in their graph, devices as given, others that run ops after them. A tensor is an
output port of an op: its number is that on the first device, and on others that plus the device's.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING

from placement_advisor.graph.op_graph import CONTROL_PORT, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.graph.op_graph import Op, OpGraph
    from placement_advisor.simulator.events import OpRun, Transfer


class StepFlow:
    """The flow of tensors through a step.

    By op: ``reads`` has the tensors that it takes (on the first device), ``variables_of`` the
    variables that it reads or writes, ``transfers_of`` the transfers that it feeds. ``users_of``
    has the ops that read or write a variable. ``sent`` and ``received`` are the tensor of each
    transfer at its ends. ``awaited`` counts the readers and transfers of a tensor where it is, and
    ``crossing`` has those that go to or come from another process.
    """

    def __init__(
        self,
        graph: OpGraph,
        runs: Sequence[OpRun],
        transfers: Iterable[Transfer],
        devices: Iterable[str],
    ) -> None:
        """Take a schedule's runs and transfers; control signals are left out."""
        everywhere = dict.fromkeys([*devices, *(run.device for run in runs)])
        self.devices = len(everywhere)
        self.device_index = {name: i for i, name in enumerate(everywhere)}
        self.op_index = {op.name: i for i, op in enumerate(graph.ops)}
        # A graph may leave out the sizes of ports that its edges leave from.
        edge_ports = 1 + max((edge.port for edge in graph.edges), default=0)
        ports = max(edge_ports, max((len(op.output_bytes) for op in graph.ops), default=0))
        self._op_stride = ports * self.devices
        self.ops = graph.ops
        # One after the other as they started; of equal starts, as given.
        self.runs = sorted(runs, key=attrgetter("start_ns"))
        self.transfers = [each for each in transfers if not each.is_control]
        self.device_of: list[int | None] = [None] * len(graph)
        for run in runs:
            self.device_of[self.op_index[run.op]] = self.device_index[run.device]
        self.reads: list[list[int]] = [[] for _ in graph.ops]
        self.variables_of: list[list[int]] = [[] for _ in graph.ops]
        self.users_of: defaultdict[int, list[Op]] = defaultdict(list)
        self.awaited: defaultdict[int, int] = defaultdict(int)
        self._follow_edges(graph)
        self.transfers_of: defaultdict[int, list[int]] = defaultdict(list)
        self.sent: list[int] = []
        self.received: list[int] = []
        self.crossing: set[int] = set()
        self._follow_transfers()

    def tensor(self, op: int, port: int) -> int:
        """Return the number of a tensor on the first device."""
        return op * self._op_stride + port * self.devices

    def producer(self, tensor: int) -> Op:
        """Return the op that makes a tensor, on whichever device it is."""
        return self.ops[tensor // self._op_stride]

    def _follow_edges(self, graph: OpGraph) -> None:
        for producer, consumer, port, _ in graph.edges:
            if port == CONTROL_PORT:
                continue
            source, reader = self.op_index[producer], self.op_index[consumer]
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
            op = self.op_index[transfer.producer]
            tensor = self.tensor(op, transfer.port)
            sent = tensor + self.device_index[transfer.source]
            received = tensor + self.device_index[transfer.target]
            self.sent.append(sent)
            self.received.append(received)
            self.transfers_of[op].append(number)
            self.awaited[sent] += 1
            if is_unpacked(transfer):
                self.crossing |= {sent, received}


def is_unpacked(transfer: Transfer) -> bool:
    """Return whether the copy goes from process to process: the target's processor unpacks it."""
    return transfer.receive_work_ns > 0
