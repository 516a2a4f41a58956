"""Runs placed steps: one TensorFlow session per candidate, all on the same devices.

Runs in the client process of a testbed. The same code drives worker processes (a gRPC target) and
the devices of its own process (no target). Grappler and its remapper are off for every candidate
alike, since they fuse and move ops across devices: what runs is what was planned. Each session
has its own copy of the state, from the same initial values.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.tf import placer
from placement_advisor.tf.answers import Calibration, Prepared, RunFailure
from placement_advisor.tf.bundle import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.graph import OpGraph

v1 = tf.compat.v1

# From one network packet to a large activation; a step's copies lie between.
_CALIBRATION_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
_CALIBRATION_HOPS = 4
_CALIBRATION_REPEATS = 12
# Below this a tensor counts as zero: relative differences of rounding noise mean nothing.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True)
class _Ready:
    """A candidate's session with what to call on it."""

    session: Any
    step: Callable[[], None]
    step_with_outputs: Callable[[], list[Any]]
    put_batch: Callable[[int], None]
    read_state: Callable[[], dict[str, Any]]
    reset: Callable[[], None]


_bundle: Bundle | None = None
_graph: OpGraph | None = None
_target = ""
_devices: dict[str, str] = {}
_host = ""
_config: dict[str, Any] = {}
_ready: dict[str, _Ready] = {}
_reference: tuple[list[Any], dict[str, Any]] | None = None


def open_runner(
    folder: str, graph: OpGraph, target: str, devices: dict[str, str], host: str, logical_cpus: int
) -> None:
    """Load the bundle and remember the devices (our name -> TensorFlow's)."""
    global _bundle, _graph, _target, _host
    _bundle, _graph, _target, _host = Bundle.load(Path(folder)), graph, target, host
    _devices.update(devices)
    if logical_cpus:
        _config["device_count"] = {"CPU": logical_cpus}


def prepare(label: str, device_of: Mapping[str, str]) -> Prepared | RunFailure:
    """Build the candidate's session, run one step and prove where its ops ran."""
    assert _bundle is not None
    assert _graph is not None
    try:
        placed = placer.placed_graph(
            _bundle, {op: _devices[device] for op, device in device_of.items()}, _host
        )
        ready, partitions = _open_session(placed)
    except (tf.errors.OpError, ValueError) as error:
        return _failure(error)
    _ready[label] = ready
    sizes = {
        (op.name, port): size for op in _graph.ops for port, size in enumerate(op.output_bytes)
    }
    names = {device: name for name, device in _devices.items()}
    return Prepared(
        moved_ops=placer.moved_ops(partitions, placed),
        crossings=placer.crossings(partitions, names, sizes),
    )


def discard(label: str) -> None:
    """Close a candidate's session and free its state."""
    ready = _ready.pop(label, None)
    if ready is not None:
        ready.session.close()


def verify(label: str, steps: int) -> float | RunFailure | None:
    """Run ``steps`` steps from the initial state and compare with the first candidate verified.

    Returns the largest difference of any output or variable, relative to that tensor's largest
    value; None for the reference itself. The state is reset before and after.
    """
    global _reference
    assert _bundle is not None
    ready = _ready[label]
    try:
        ready.reset()
        outputs: list[Any] = []
        for i in range(steps):
            ready.put_batch(i)
            outputs += ready.step_with_outputs()
        state = ready.read_state()
        ready.reset()
    except tf.errors.OpError as error:
        return _failure(error)
    if _reference is None:
        _reference = outputs, state
        return None
    pairs = [*zip(outputs, _reference[0], strict=True)]
    pairs += [(state[name], _reference[1][name]) for name in state]
    return max((_difference(ours, theirs) for ours, theirs in pairs), default=0.0)


def run_steps(label: str, batch: int, steps: int) -> list[int] | RunFailure:
    """Put a batch in place, then run and time steps, each on its own."""
    ready = _ready[label]
    try:
        ready.put_batch(batch)
        return [_timed(ready.step) for _ in range(steps)]
    except tf.errors.OpError as error:
        return _failure(error)


def profile_steps(label: str, steps: int, folder: str) -> RunFailure | None:
    """Run steps under this process's profiler, each marked as a step."""
    ready = _ready[label]
    tf.profiler.experimental.start(folder, options=profiler_options())
    try:
        for i in range(steps):
            with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
                ready.step()
    except tf.errors.OpError as error:
        return _failure(error)
    finally:
        tf.profiler.experimental.stop()
    return None


def profiler_options() -> Any:
    """Return the options of every profile: ops and copies, no Python frames."""
    return tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)


def calibrate() -> Calibration:
    """Time copies between every pair of devices, and an empty step.

    A tensor is sent to and fro; the same chain on one device is subtracted, repeat by repeat.
    """
    links: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for one, other in combinations(_devices, 2):
        samples = _calibrate_pair(_devices[one], _devices[other])
        links[one, other] = links[other, one] = samples
    graph = tf.Graph()
    with graph.as_default(), tf.device(next(iter(_devices.values()))):
        empty = tf.no_op()
    with _session(graph) as session:
        run = session.make_callable([empty])
        overhead = [_timed(run) for _ in range(_CALIBRATION_REPEATS * 2)]
    return Calibration(links=links, step_overhead_ns=round(median(overhead[2:])))


def _calibrate_pair(one: str, other: str) -> list[tuple[int, int]]:
    graph = tf.Graph()
    chains: dict[int, list[Any]] = {}
    with graph.as_default():
        starts = []
        for size in _CALIBRATION_BYTES:
            with tf.device(one):
                start = tf.raw_ops.VarHandleOp(
                    dtype=tf.float32, shape=[size // 4], shared_name=f"calibration_{size}"
                )
                zeros = tf.zeros([size // 4])
                starts.append(tf.raw_ops.AssignVariableOp(resource=start, value=zeros))
            chains[size] = []
            for far in (other, one):
                with tf.device(one):
                    tensor = tf.raw_ops.ReadVariableOp(resource=start, dtype=tf.float32)
                for hop in range(_CALIBRATION_HOPS):
                    with tf.device(far if hop % 2 == 0 else one):
                        tensor = tf.identity(tensor)
                chains[size].append(tensor.op)
    samples = []
    with _session(graph) as session:
        session.run(starts)
        for size, (crossing, local) in chains.items():
            there, here = session.make_callable([crossing]), session.make_callable([local])
            there(), here()
            samples += [
                (size, (_timed(there) - _timed(here)) // _CALIBRATION_HOPS)
                for _ in range(_CALIBRATION_REPEATS)
            ]
    return samples


def _session(graph: Any) -> Any:
    config = v1.ConfigProto(allow_soft_placement=False, isolate_session_state=True, **_config)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    config.gpu_options.allow_growth = True
    return v1.Session(_target, graph=graph, config=config)


def _open_session(placed: Any) -> tuple[_Ready, list[Any]]:
    assert _bundle is not None
    bundle = _bundle
    graph = tf.Graph()
    reads: dict[str, Any] = {}
    with graph.as_default():
        tf.graph_util.import_graph_def(placed, name="")
        assign = {
            name: _assignment(graph.get_tensor_by_name(f"{name}:0"), value)
            for name, value in bundle.variables.items()
        }
        put = {
            name: _assignment(graph.get_tensor_by_name(f"{name}{placer.RESIDENT_SUFFIX}:0"), value)
            for name, value in zip(bundle.inputs, bundle.batches[0], strict=True)
        }
        fill = [
            _table_import(graph.get_tensor_by_name(f"{name}:0"), *content)
            for name, content in bundle.tables.items()
        ]
        for name, value in bundle.variables.items():
            handle = graph.get_tensor_by_name(f"{name}:0")
            with tf.device(handle.device):
                reads[name] = tf.raw_ops.ReadVariableOp(
                    resource=handle, dtype=tf.as_dtype(value.dtype)
                )
    session = _session(graph)
    outputs = [graph.get_tensor_by_name(name) for name in bundle.outputs]
    targets = [graph.get_operation_by_name(name) for name in bundle.targets]
    ends = [*dict.fromkeys([*targets, *(tensor.op for tensor in outputs)])]

    def put_batch(number: int) -> None:
        batch = bundle.batches[number % len(bundle.batches)]
        for name, value in zip(bundle.inputs, batch, strict=True):
            operation, feed = put[name]
            session.run(operation, {feed: value})

    def reset() -> None:
        for name, value in bundle.variables.items():  # One by one: a message holds 2 GB at most.
            operation, feed = assign[name]
            session.run(operation, {feed: value})

    for operation, feeds in fill:
        session.run(operation, feeds)
    reset()
    put_batch(0)
    metadata = v1.RunMetadata()
    session.run(ends, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    with_outputs = session.make_callable([outputs, targets])
    ready = _Ready(
        session=session,
        step=session.make_callable(ends),
        step_with_outputs=lambda: list(with_outputs()[0]),
        put_batch=put_batch,
        read_state=lambda: dict(session.run(reads)),
        reset=reset,
    )
    return ready, list(metadata.partition_graphs)


def _assignment(handle: Any, value: Any) -> tuple[Any, Any]:
    dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
    with tf.device(handle.device):
        feed = v1.placeholder(dtype, value.shape)
        return tf.raw_ops.AssignVariableOp(resource=handle, value=feed), feed


def _table_import(handle: Any, keys: Any, values: Any) -> tuple[Any, dict[Any, Any]]:
    with tf.device(handle.device):
        feeds = {
            v1.placeholder(tf.string if a.dtype == object else tf.as_dtype(a.dtype), a.shape): a
            for a in (keys, values)
        }
        keys_feed, values_feed = feeds
        operation = tf.raw_ops.LookupTableImportV2(
            table_handle=handle, keys=keys_feed, values=values_feed
        )
    return operation, feeds


def _difference(ours: Any, theirs: Any) -> float:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if not np.issubdtype(ours.dtype, np.inexact):
        return 0.0 if np.array_equal(ours, theirs) else 1.0
    if ours.size == 0:
        return 0.0
    scale = max(float(np.max(np.abs(theirs))), _NEGLIGIBLE)
    worst = float(np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64))))
    return float("inf") if np.isnan(worst) and not np.isnan(scale) else worst / scale


def _timed(function: Callable[[], Any]) -> int:
    start = time.perf_counter_ns()
    function()
    return time.perf_counter_ns() - start


def _failure(error: Exception) -> RunFailure:
    message = (getattr(error, "message", None) or str(error)).strip()
    return RunFailure(
        out_of_memory=isinstance(error, tf.errors.ResourceExhaustedError),
        message=message.splitlines()[0] if message else type(error).__name__,
    )
