"""What a loop or conditional runs on a GPU, where TensorFlow places its ops one by one.

TensorFlow lowers a loop or conditional to single ops before it places them, so that one op without
a GPU kernel stands on the host, and the others on the GPU. Tensors cross between the two, each once
either way: what such an op reads of the others, and what they, or whoever runs the loop or
conditional, read of it. Constants stand on both.

Left out: loops and conditionals that are kept from being lowered (for XLA, or in an executor of one
thread), the switches and merges themselves, which branch an argument comes to, and inputs that a
GPU kernel wants in host memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op import Inside
from placement_advisor.tf.trace.device_kinds import kernel_placement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from placement_advisor.tf.trace.nodes import Node

NOTHING_INSIDE = Inside(ops=0, copies=0, copied_bytes=0)
_STANDING_KINDS = frozenset({"Const", "NoOp"})
_ARGUMENT_KINDS = frozenset({"Placeholder", "_Arg"})


def inside_of(
    nodes: Collection[Node], returned: Iterable[tuple[Node, int]], opened: Collection[str]
) -> Inside:
    """Return what one run of these nodes takes.

    ``returned`` are the tensors that leave them, ``opened`` the names of loops, conditionals and
    calls among them, which are counted by themselves.
    """
    computing = [
        node
        for node in nodes
        if node.kind not in _STANDING_KINDS | _ARGUMENT_KINDS and node.name not in opened
    ]
    host_ports: dict[str, tuple[int, ...] | None] = {}
    for node in computing:
        if node.source is not None:
            runs_on = kernel_placement(node.source.definition())
            host_ports[node.name] = runs_on.host_outputs if "GPU" in runs_on.device_kinds else None
    on_host = {name for name, ports in host_ports.items() if ports is None}

    def crosses(producer: Node, port: int, *, to_host: bool) -> bool:
        spec = producer.outputs[port]
        if producer.kind in _STANDING_KINDS or spec.is_handle or spec.dtype == "string":
            return False
        is_on_host = producer.name in on_host
        return not to_host if is_on_host else to_host and port not in _ports(host_ports, producer)

    crossing = {
        (producer.name, port): producer.outputs[port].size_bytes
        for node in computing
        for producer, port in node.inputs
        if crosses(producer, port, to_host=node.name in on_host)
    }
    crossing |= {
        (producer.name, port): producer.outputs[port].size_bytes
        for producer, port in returned
        if crosses(producer, port, to_host=False)
    }
    return Inside(
        ops=len(computing),
        copies=len(crossing),
        copied_bytes=_total(list(crossing.values())),
    )


def together(parts: Sequence[Inside | None]) -> Inside | None:
    """Return what all parts take together, None if that of any is not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Inside(
        ops=sum(part.ops for part in known),
        copies=sum(part.copies for part in known),
        copied_bytes=_total([part.copied_bytes for part in known]),
    )


def times(inside: Inside | None, trips: int | None) -> Inside | None:
    """Return what so many runs take, None if their number is not known."""
    if inside is None or trips is None:
        return None
    copied = inside.copied_bytes
    return Inside(
        ops=inside.ops * trips,
        copies=inside.copies * trips,
        copied_bytes=None if copied is None else copied * trips,
    )


def largest(branches: Sequence[Inside | None]) -> Inside | None:
    """Return the branch with most copies, and most ops among such; None if any is not known."""
    known = [branch for branch in branches if branch is not None]
    if len(known) < len(branches):
        return None
    return max(known, key=lambda branch: (branch.copies, branch.ops), default=NOTHING_INSIDE)


def _ports(host_ports: dict[str, tuple[int, ...] | None], producer: Node) -> tuple[int, ...]:
    return host_ports.get(producer.name) or ()


def _total(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
