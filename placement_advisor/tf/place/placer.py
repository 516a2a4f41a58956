"""A placement applied to a bundle's graph, and the proof of where ops really ran.

Model: every op gets its device. Constants are copied to each device that reads them. Inputs become
variables that hold a batch on their device, as a prefetching input pipeline would leave it, so
that a step's time holds no feeding. Colocation wishes are dropped: the placement has obeyed the
ones that matter (resource ops stand with their variable).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.profile.worker_steps import PlannedCopy
from placement_advisor.tf.trace.device_kinds import function_device_kinds, kernel_placement
from placement_advisor.tf.trace.roles import HANDLE_KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from placement_advisor.tf.trace.bundle import Bundle

RESIDENT_SUFFIX = "/resident"
_SEND_KINDS = frozenset({"_Send", "_HostSend"})
_RECV_KINDS = frozenset({"_Recv", "_HostRecv"})


def placed_graph(bundle: Bundle, device_of: Mapping[str, str], host: str) -> Any:
    """Return the bundle's GraphDef with ``device_of`` (op name -> TensorFlow device) applied.

    See `on_devices`; inputs become variables.
    """
    members = {name: loop.members for name, loop in bundle.loops.items()}
    placed = on_devices(bundle.graph_def, bundle.inputs, members, device_of, host)
    _make_resident(placed, bundle)
    return placed


def on_devices(
    graph_def: Any,
    inputs: Collection[str],
    loops: Mapping[str, Collection[str]],
    device_of: Mapping[str, str],
    host: str,
) -> Any:
    """Return a flat GraphDef with ``device_of`` (op name -> TensorFlow device) applied.

    What is meant for a GPU goes to the CPU beside it if it is one of the ``inputs``, for pipelines
    leave batches there, or an op without a GPU kernel for its types, or shares a variable with such
    an op. Constants that no op reads go to ``host``. ``loops`` names the ops that each folded loop
    stands for; they go where it goes.
    """
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(graph_def)
    constants = {node.name: node for node in graph_def.node if node.op == "Const"}
    on_host = {*inputs, *_without_gpu(placed)}
    in_loops = {op: device_of[name] for name, members in loops.items() for op in members}
    device_of = {**device_of, **in_loops}
    device: dict[str, str] = {}
    for node in placed.node:
        node.attr.pop("_class", None)
        if node.op == "Const":
            continue
        wanted = device_of[node.name]
        node.device = cpu_of(wanted) if node.name in on_host else wanted
        device[node.name] = node.device
    for function in placed.library.function:
        for node in function.node_def:
            node.attr.pop("_class", None)
            node.device = ""
    _copy_constants(placed, constants, device, host, on_host)
    return placed


def is_gpu(device: str) -> bool:
    """Return whether a device of TensorFlow's is a GPU."""
    return ":GPU:" in device


def cpu_of(device: str) -> str:
    """Return the CPU of the process that has a device of TensorFlow's."""
    return f"{device.rpartition('GPU:')[0]}CPU:0" if is_gpu(device) else device


def _without_gpu(graph_def: Any) -> set[str]:
    """Return the ops that no GPU can run, with their state and all that takes it."""
    functions = function_device_kinds(graph_def.library.function)
    found = {
        node.name
        for node in graph_def.node
        if "GPU" not in kernel_placement(node, functions).device_kinds
    }
    handles = {node.name for node in graph_def.node if node.op in HANDLE_KINDS}
    together = [
        {node.name, *taken}
        for node in graph_def.node
        if (taken := handles.intersection(reference.split(":")[0] for reference in node.input))
    ]
    while reached := [group for group in together if not found.isdisjoint(group) and group - found]:
        found.update(*reached)
    return found


def _copy_constants(
    placed: Any,
    constants: dict[str, Any],
    device: dict[str, str],
    host: str,
    on_host: Collection[str],
) -> None:
    """Give each device its own copy of the constants that it reads."""
    home: dict[str, str] = {}
    copies: dict[tuple[str, str], str] = {}
    for node in placed.node:
        if node.op == "Const":
            continue
        for i, reference in enumerate(node.input):
            name, _, port = reference.removeprefix("^").partition(":")
            if name not in constants:
                continue
            here = device[node.name]
            if name in on_host:
                here = cpu_of(here)
            if home.setdefault(name, here) == here:
                continue
            copy = copies.setdefault((name, here), f"{name}/copy_{len(copies)}")
            mark = "^" if reference.startswith("^") else ""
            node.input[i] = f"{mark}{copy}{':' + port if port else ''}"
    for node in placed.node:
        if node.op == "Const":
            node.device = home.get(node.name, host)
    for (name, here), copy in copies.items():
        added = placed.node.add()
        added.CopyFrom(constants[name])
        added.name, added.device = copy, here
        added.attr.pop("_class", None)


def _make_resident(placed: Any, bundle: Bundle) -> None:
    """Turn each input into a variable that holds a batch, read under the input's own name."""
    nodes = {node.name: node for node in placed.node}
    for name, example in zip(bundle.inputs, bundle.batches[0], strict=True):
        node = nodes[name]
        dtype = node.attr["dtype"].type
        holder = placed.node.add()
        holder.name, holder.op, holder.device = name + RESIDENT_SUFFIX, "VarHandleOp", node.device
        holder.attr["dtype"].type = dtype
        holder.attr["shape"].shape.CopyFrom(tf.TensorShape(example.shape).as_proto())
        holder.attr["shared_name"].s = holder.name.encode()
        node.op = "ReadVariableOp"
        node.attr.clear()
        node.attr["dtype"].type = dtype
        node.input.append(holder.name)


def moved_ops(partitions: Iterable[Any], placed: Any) -> tuple[str, ...]:
    """Return the ops that the executed partition graphs hold on another device than planned."""
    planned = {node.name: node.device for node in placed.node}
    return tuple(
        sorted(
            f"{node.name}: {_short(planned[node.name])} → {_short(node.device)}"
            for graph in partitions
            for node in graph.node
            if node.name in planned and node.device != planned[node.name]
        )
    )


def crossings(
    partitions: Iterable[Any],
    device_names: Mapping[str, str],
    size_of: Mapping[tuple[str, int], int | None],
) -> tuple[PlannedCopy, ...]:
    """Return every copy between devices in the executed partition graphs.

    ``device_names`` maps TensorFlow's device names to ours, ``size_of`` (op, port) to bytes. What
    stays with one of ours is no copy, such as from a GPU to the CPU beside it.
    """
    sends: dict[str, tuple[str, str, int, str]] = {}
    receives: dict[str, tuple[str, str]] = {}
    for graph in partitions:
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if node.op not in _SEND_KINDS | _RECV_KINDS or node.attr["client_terminated"].b:
                continue
            tensor = node.attr["tensor_name"].s.decode()
            if node.op in _RECV_KINDS:
                receives[tensor] = (node.name, node.attr["recv_device"].s.decode())
                continue
            name, _, port = node.input[0].partition(":")
            # A control edge crosses as an empty constant that waits for the op.
            control = next((i[1:] for i in nodes[name].input if i.startswith("^")), None)
            is_signal = nodes[name].op == "Const" and (name, 0) not in size_of and control
            producer, number = (str(control), -1) if is_signal else (name, int(port or 0))
            sends[tensor] = (node.name, producer, number, node.attr["send_device"].s.decode())
    return tuple(
        PlannedCopy(
            send_node=send_node,
            recv_node=receives[tensor][0],
            producer=producer,
            port=port,
            source=device_names[source],
            target=device_names[receives[tensor][1]],
            size_bytes=0 if port < 0 else size_of.get((producer, port)),
        )
        for tensor, (send_node, producer, port, source) in sorted(sends.items())
        if tensor in receives and source in device_names and receives[tensor][1] in device_names
        if device_names[source] != device_names[receives[tensor][1]]
    )


def _short(device: str) -> str:
    return re.sub(r"^/job:\w+/replica:0/task:(\d+)/device:", r"task \1 ", device)
