"""What keeps a device busy that cannot get rid of its work: every copy costs it work as well.

Model: for an op, the *root*, look at the device that holds it. An op there takes its time; an op
elsewhere costs the work of sending what it reads from there, and of receiving what is read there.
The least that any choice leaves is a minimum cut, and the maximum flow that equals it proves it.
Which device that is, and in which order it works, does not matter. It may be busy with sending to
the end of the step, when its last op is long done: so what passes until that end is known adds
nothing.

Only for devices that do their own copying, without hosts. Left out: that a tensor is sent anew to
each further device.

Source: Stone, Multiprocessor scheduling with the aid of network flow algorithms (1977),
https://doi.org/10.1109/TSE.1977.233840, for one processor's side of the cut.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.solvers.bounds.arguments import CutArgument

if TYPE_CHECKING:
    from placement_advisor.solvers.bounds.step_numbers import Step

# Roots to try: what sends and receives most is the best of them on all graphs that were looked at.
_ROOTS = 6
# More than any work, and its sums fit 64 bits.
_UNLIMITED_NS = 2**45

SINK = "sink"


def root_cut(step: Step) -> CutArgument | None:
    """Return the best argument of a root; None where processors do not move the bytes."""
    is_work = any(step.send_ns(each) or step.receive_ns(each) for each in step.tensors)
    if step.has_hosts or not is_work:
        return None
    return max((_cut(step, root) for root in _roots(step)), key=lambda cut: cut.value_ns)


def group_name(step: Step, group: int) -> str:
    """Return the name of a group in flows: that of its first op."""
    return f"op {step.ops[step.groups[group][0]].name}"


def _roots(step: Step) -> list[int]:
    busy_ns: defaultdict[int, int] = defaultdict(int)
    for op, group in enumerate(step.group_of):
        busy_ns[group] += step.least_ns[op]
    for tensor in step.tensors:
        busy_ns[step.group_of[tensor.producer]] += step.send_ns(tensor)
        for group in {step.group_of[reader] for reader in tensor.readers}:
            busy_ns[group] += step.receive_ns(tensor)
    return sorted(busy_ns, key=lambda group: (-busy_ns[group], group))[:_ROOTS]


def _cut(step: Step, root: int) -> CutArgument:
    # Loading it takes half a second; who asks for no bounds does not wait for it.
    from ortools.graph.python import max_flow

    number: dict[str, int] = {SINK: 0}
    network = max_flow.SimpleMaxFlow()
    arcs: list[tuple[str, str]] = []

    def connect(source: str, target: str, limit_ns: int) -> None:
        ends = (number.setdefault(name, len(number)) for name in (source, target))
        network.add_arc_with_capacity(*ends, limit_ns)
        arcs.append((source, target))

    names = [group_name(step, group) for group in range(len(step.groups))]
    for name, ops in zip(names, step.groups, strict=True):
        connect(name, SINK, sum(step.least_ns[op] for op in ops))
    for tensor in step.tensors:
        home = step.group_of[tensor.producer]
        readers = {step.group_of[reader] for reader in tensor.readers} - {home}
        if not readers:
            continue
        label = f"{step.ops[tensor.producer].name}:{tensor.port}"
        if step.send_ns(tensor):
            connect(names[home], f"sent {label}", step.send_ns(tensor))
            for reader in sorted(readers):
                connect(f"sent {label}", names[reader], _UNLIMITED_NS)
        if step.receive_ns(tensor):
            connect(f"received {label}", names[home], step.receive_ns(tensor))
            for reader in sorted(readers):
                connect(names[reader], f"received {label}", _UNLIMITED_NS)
    network.solve(number[names[root]], number[SINK])
    flow = {ends: amount for arc, ends in enumerate(arcs) if (amount := network.flow(arc)) > 0}
    places = step.cluster.device_names()
    return CutArgument(
        value_ns=network.optimal_flow() + min(map(step.begin_ns, places)),
        root=names[root].removeprefix("op "),
        flow=flow,
    )
