"""Applies a placement to a bundle's graph and runs it in a session with its own copy of state.

A placed step also shows where its ops ran.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.profile.worker_steps import PlannedCopy
from placement_advisor.tf.trace import roles
from placement_advisor.tf.trace.device_kinds import function_device_kinds, kernel_placement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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
    handles = {node.name for node in graph_def.node if node.op in roles.HANDLE_KINDS}
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


v1 = tf.compat.v1

# TensorFlow sends 2 GB at once at most. Half of that leaves room for names, and for what it copies.
MESSAGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Where sessions run: on workers (``address`` of one of them), or in this process if empty."""

    address: str
    logical_cpus: int = 0
    on_gpus: bool = False

    def session(self, graph: Any, limit_s: float | None = None) -> Any:
        """Return a session that runs a graph as it is; a run ends at the limit, if there is one."""
        config = v1.ConfigProto(isolate_session_state=True)
        if limit_s is not None:
            config.operation_timeout_in_ms = round(limit_s * 1_000)
        # A kernel that a GPU lacks for one type shows only when it runs; what TensorFlow moves to
        # the host then is reported as moved. On CPUs nothing lacks a kernel, so nothing may move.
        config.allow_soft_placement = self.on_gpus
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        if self.logical_cpus:
            config.device_count["CPU"] = self.logical_cpus
        return v1.Session(self.address, graph=graph, config=config)


class PlacedStep:
    """A candidate that is ready to run its ``bundle``.

    ``placed`` is the graph as it was asked for, ``partitions`` are the graphs that the devices
    execute.
    """

    def __init__(self, bundle: Bundle, placed: Any, runtime: Runtime, limit_s: float) -> None:
        """Set up the state and run one step; no step takes longer than the limit.

        Raises:
            OpError: TensorFlow refuses the placement, or the step fails or does not end.
            ValueError: the graph is not valid.
        """
        self.bundle, self.placed = bundle, placed
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(placed, name="")
            handles = {name: graph.get_tensor_by_name(f"{name}:0") for name in bundle.variables}
            assign = assignments(graph, bundle)
            residents = [graph.get_tensor_by_name(f"{i}{RESIDENT_SUFFIX}:0") for i in bundle.inputs]
            self._assign = [
                {name: assign[name] for name in names} for names in in_messages(bundle.variables)
            ]
            self._put = [
                _assignment(resident, value)
                for resident, value in zip(residents, bundle.batches[0], strict=True)
            ]
            fill = table_imports(graph, bundle)
            self._reads = {
                name: _read(handles[name], value) for name, value in bundle.variables.items()
            }
        outputs = [graph.get_tensor_by_name(name) for name in bundle.outputs]
        targets = [graph.get_operation_by_name(name) for name in bundle.targets]
        ends = [*dict.fromkeys([*targets, *(tensor.op for tensor in outputs)])]
        self._session = runtime.session(graph, limit_s)
        try:
            for operation, feeds in fill:
                self._session.run(operation, feeds)
            self.reset()
            self.put_batch(0)
            metadata = v1.RunMetadata()
            options = v1.RunOptions(output_partition_graphs=True)
            self._session.run(ends, options=options, run_metadata=metadata)
            self.partitions = tuple(metadata.partition_graphs)
            self.run = self._session.make_callable(ends)
            ran = {node.name for partition in self.partitions for node in partition.node}
            self._updates = [
                each for each in roles.updates(placed.node, bundle.variables) if each.op in ran
            ]
            given = {name: roles.tensor_name(name) for name in roles.tensors(self._updates)}
            self._fetches = [outputs, targets, given]
        except Exception:
            self.close()
            raise

    def put_batch(self, number: int) -> None:
        """Put an example batch in place; they are used in turn."""
        self.put(self.bundle.batches[number % len(self.bundle.batches)])

    def put(self, batch: Sequence[Any]) -> None:
        """Put a batch in place."""
        for (operation, feed), value in zip(self._put, batch, strict=True):
            self._session.run(operation, {feed: value})

    def reset(self, values: Mapping[str, Any] | None = None) -> None:
        """Give all variables their initial values, or those given."""
        values = values or self.bundle.variables
        for together in self._assign:
            feeds = {feed: values[name] for name, (_, feed) in together.items()}
            self._session.run([operation for operation, _ in together.values()], feeds)

    def results(self, steps: int, values: Mapping[str, Any] | None = None) -> StepResults:
        """Run steps from the initial state, each on the next batch; the state is reset after.

        ``values`` takes the place of the initial state.
        """
        self.reset(values)
        outputs: list[Any] = []
        given: dict[str, tuple[AppliedUpdate, ...]] = {}
        for i in range(steps):
            self.put_batch(i)
            computed, added = self.step(i)
            outputs += computed
            given = {name: (*given.get(name, ()), *added[name]) for name in added}
        state = self.state()
        self.reset()
        before = values or self.bundle.variables
        return StepResults(outputs=tuple(outputs), before=before, state=state, given=given)

    def step(
        self, number: int, feeds: Mapping[str, Any] | None = None
    ) -> tuple[list[Any], dict[str, list[AppliedUpdate]]]:
        """Run a step; return its outputs, and what updates were given, by variable.

        ``feeds`` takes the place of what is computed for tensors.
        """
        outputs, _, values = self._session.run(self._fetches, feeds)
        return outputs, roles.given_in_step(self._updates, values, number)

    def tensors(self, names: Sequence[str]) -> list[Any]:
        """Return tensors of a step; it changes the state, if they depend on its updates."""
        found: list[Any] = self._session.run([roles.tensor_name(name) for name in names])
        return found

    def state(self) -> dict[str, Any]:
        """Return the values of all variables."""
        found: dict[str, Any] = self._session.run(self._reads)
        return found

    def close(self) -> None:
        """Free the state."""
        self._session.close()


def in_messages(values: Mapping[str, Any], most_bytes: int = MESSAGE_BYTES) -> list[list[str]]:
    """Return the names of values in groups, in order; those of a group fit into one message.

    As few as that allows: a session looks through the whole graph for each set of ops that it has
    not run before.
    """
    groups: list[list[str]] = []
    left_bytes = 0
    for name, value in values.items():
        if not groups or value.nbytes > left_bytes:
            groups.append([])
            left_bytes = most_bytes
        groups[-1].append(name)
        left_bytes -= value.nbytes
    return groups


def assignments(graph: Any, bundle: Bundle) -> dict[str, tuple[Any, Any]]:
    """Return what assigns each variable, by name, with the placeholder of the value."""
    return {
        name: _assignment(graph.get_tensor_by_name(f"{name}:0"), value)
        for name, value in bundle.variables.items()
    }


def table_imports(graph: Any, bundle: Bundle) -> list[tuple[Any, dict[Any, Any]]]:
    """Return what fills each table, with what to feed it."""
    return [
        _table_import(graph.get_tensor_by_name(f"{name}:0"), *content)
        for name, content in bundle.tables.items()
    ]


def _assignment(handle: Any, value: Any) -> tuple[Any, Any]:
    with tf.device(handle.device):
        feed = v1.placeholder(tf.as_dtype(value.dtype), value.shape)
        return tf.raw_ops.AssignVariableOp(resource=handle, value=feed), feed


def _read(handle: Any, value: Any) -> Any:
    with tf.device(handle.device):
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(value.dtype))


def _table_import(handle: Any, keys: Any, values: Any) -> tuple[Any, dict[Any, Any]]:
    with tf.device(handle.device):
        keys_feed, values_feed = (
            v1.placeholder(tf.as_dtype(array.dtype), array.shape) for array in (keys, values)
        )
        operation = tf.raw_ops.LookupTableImportV2(
            table_handle=handle, keys=keys_feed, values=values_feed
        )
    return operation, {keys_feed: keys, values_feed: values}
