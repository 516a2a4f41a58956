"""A placed step in a session of its own, with its own copy of the state.

Grappler and its remapper are off for every candidate alike, since they fuse and move ops across
devices: what runs is what was planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.tf.place.placer import RESIDENT_SUFFIX
from placement_advisor.tf.trace.update_inputs import given_in_step, tensor_name, tensors, updates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.tf.trace.bundle import Bundle

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
                each for each in updates(placed.node, bundle.variables) if each.op in ran
            ]
            given = {name: tensor_name(name) for name in tensors(self._updates)}
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
        return outputs, given_in_step(self._updates, values, number)

    def tensors(self, names: Sequence[str]) -> list[Any]:
        """Return tensors of a step; it changes the state, if they depend on its updates."""
        found: list[Any] = self._session.run([tensor_name(name) for name in names])
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
