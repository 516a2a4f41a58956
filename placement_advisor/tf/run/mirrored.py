"""Runs a step under `tf.distribute`, as the copies of a model train, and times its collectives.

Traced once more, a step reports what its updates are given, and which variables are updated
without the other replicas.
"""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.cost.collectives import CollectiveTimes, fit_collectives
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS
from placement_advisor.machine.calibration import OP_THREADS
from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.processes import children
from placement_advisor.profile.steps import COLLECTIVE_KINDS
from placement_advisor.tf import answers
from placement_advisor.tf.deterministic_graph import rounded, tracing_constant_draws
from placement_advisor.tf.failures import returns_failures
from placement_advisor.tf.load.loader import load
from placement_advisor.tf.run.graph_timing import timed
from placement_advisor.tf.run.runner import become_device, run_marked
from placement_advisor.tf.trace import roles
from placement_advisor.tf.trace.bundle import Bundle
from placement_advisor.tf.trace.nodes import Node, in_order, read
from placement_advisor.tf.trace.tracer import VariableLog, seed_everything
from placement_advisor.tf.verifier import save_results as write_results

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.machine.this_machine import Slot
    from placement_advisor.processes.calls import CallFailure
    from placement_advisor.tf.load.loaded_step import LoadedStep
    from placement_advisor.tf.load.model_source import ModelSource


_REDUCTION = "CollectiveReduce"

_strategy: Any = None
_step: _MirroredStep | None = None

# Bytes: what a bias, a small and a large layer have for gradients.
_SIZES = (4 << 10, 256 << 10, 2 << 20)
_ROW_BYTES = 256
_INDEX_SHARE = tf.int64.size / _ROW_BYTES
# How many rows there are, the rows, and their indices.
_GATHERS_OF_ROWS = 3
# Judgement: four collectives one after the other are told apart from the call that starts them, and
# the medians of eleven runs stand up to five that are disturbed. It takes some seconds in all.
_CHAIN = 4
_WARM_UP, _REPEATS = 2, 11
# Over a slow network fewer runs have to do: what takes that long is hardly disturbed.
_BUDGET_NS = 4e9


@returns_failures(tf.errors.OpError)
def time_collectives() -> CollectiveTimes:
    """Time exchanges of dense and of sparse gradients among the strategy's replicas.

    Nothing of the model runs.
    """
    count = _strategy.num_replicas_in_sync

    def dense(rows: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, [rows])[0] / count

    def sparse(rows: Any) -> Any:
        indices = tf.range(rows.shape[0], dtype=tf.int64)
        slices = tf.IndexedSlices(rows, indices, tf.shape(rows, out_type=tf.int64))
        context = tf.distribute.get_replica_context()
        (every,) = context.all_reduce(tf.distribute.ReduceOp.SUM, [slices])
        return tf.ensure_shape(every.values[: rows.shape[0]], rows.shape)

    dense_ns, dense_calls = _times(dense)
    sparse_ns, sparse_calls = _times(sparse)
    sent = 2 * (count - 1) / count
    gathered = (count - 1) * (1 + _INDEX_SHARE) / _GATHERS_OF_ROWS
    return fit_collectives(
        [(round(sent * size), time_ns) for size, time_ns in dense_ns.items()],
        [(round(gathered * size), t_ns / _GATHERS_OF_ROWS) for size, t_ns in sparse_ns.items()],
        replicas=count,
        call_ns=median([*dense_calls, *sparse_calls]),
    )


def _times(exchange: Callable[[Any], Any]) -> tuple[dict[int, float], tuple[float, ...]]:
    """Return what an exchange takes, in ns, by the bytes of its rows, and what calls take beside.

    Steps with one exchange and with several in a row take the same beside them.
    """
    found, calls = {}, []
    for size_bytes in _SIZES:
        chains = [_chained(exchange, n, size_bytes) for n in (1, 1 + _CHAIN)]
        for _ in range(_WARM_UP):
            took_ns = sum(timed(run) for run in chains)
        affordable = int(_BUDGET_NS / _agreed(took_ns))
        repeats = max(1, min(_REPEATS, affordable))
        times = [[timed(run) for run in chains] for _ in range(repeats)]
        one, several = map(median, zip(*times, strict=True))
        found[size_bytes] = max(1.0, (several - one) / _CHAIN)
        calls.append(max(0.0, one - found[size_bytes]))
    return found, tuple(calls)


def _agreed(took_ns: float) -> float:
    """Return the mean of what replicas found, the same for all: they have to run as often."""

    def exchange() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.constant([took_ns], tf.float64))

    found = tf.function(lambda: _strategy.run(exchange), autograph=False)()
    return float(_strategy.experimental_local_results(found)[0].numpy()[0])


def _chained(exchange: Callable[[Any], Any], length: int, size_bytes: int) -> Callable[[], Any]:
    """Return what runs some exchanges, each of what the one before it gives."""

    def chain() -> Any:
        rows = tf.ones([size_bytes // _ROW_BYTES, _ROW_BYTES // tf.float32.size])
        for _ in range(length):
            rows = exchange(rows)
        return rows[0, 0]

    function = tf.function(lambda: _strategy.run(chain), autograph=False)

    def run() -> None:
        for part in _strategy.experimental_local_results(function()):
            part.numpy()

    return run


def open_devices(kind: str, count: int) -> None:
    """Mirror over devices of this process: GPUs, or one CPU taken for several."""
    global _strategy
    if kind == "CPU":
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        tf.config.set_logical_device_configuration(cpu, parts)
    _leave_graphs_alone()
    _strategy = tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(count)])


@returns_failures(tf.errors.OpError)
def open_worker(addresses: tuple[str, ...], index: int, slot: Slot) -> None:
    """Be one of several workers, each with a core or a GPU of its own."""
    global _strategy
    become_device(slot)
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    if slot.is_core:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(OP_THREADS)
    _leave_graphs_alone()
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    _strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def prepare(
    source: ModelSource,
    folder: str,
    created: Mapping[str, int],
    captured: answers.CapturedCall | None,
) -> answers.Prepared | CallFailure:
    """Run the user's file under the strategy, and one step; ``folder`` has the step's bundle.

    ``created`` has the place of each variable of the bundle among all that the file creates. A
    script runs up to the call of it that was ``captured``; the rest is answered from within.
    """
    bundle = Bundle.load(Path(folder))
    log = VariableLog()

    @returns_failures(Exception)
    def prepared(load_step: Callable[[], LoadedStep]) -> answers.Prepared:
        global _step
        _step = _MirroredStep(load_step(), bundle, created, log)
        return answers.Prepared(
            moved_ops=(),
            crossings=(),
            exchanged_bytes=_step.exchanged_bytes(),
            unexchanged=_step.unexchanged(),
        )

    def from_within(find: Callable[[], LoadedStep]) -> None:
        children.go_on_within(lambda: prepared(find))

    again = None if captured is None else (captured, bundle.batches[0])
    seed_everything()
    with _strategy.scope(), log.recording():
        return prepared(lambda: load(source, from_within, again))


@returns_failures(Exception)
def run_steps(batch: int, steps: int) -> list[int]:
    """Share a batch out, then run and time steps, each on its own, in ns."""
    return _prepared().timed(batch, steps)


@returns_failures(Exception)
def save_results(steps: int, path: str, draws: bool, seed: int | None) -> None:
    """Write what steps from the initial state compute; the state is reset before and after.

    Unless it ``draws`` random numbers, the step draws constants. With a ``seed`` the initial state
    is rounded by it.
    """
    write_results(Path(path), _prepared().results(steps, draws=draws, seed=seed))


@returns_failures(Exception)
def run_marked_steps(steps: int) -> None:
    """Run steps on the shares of a batch that are timed, each marked for the profiler."""
    _prepared().marked(steps)


def _prepared() -> _MirroredStep:
    assert _step is not None, "prepare comes first"
    return _step


def _leave_graphs_alone() -> None:
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


class _MirroredStep:
    """A step, made under the strategy; ``log`` records its variables."""

    def __init__(
        self, loaded: LoadedStep, bundle: Bundle, created: Mapping[str, int], log: VariableLog
    ) -> None:
        batches = tuple(
            tf.nest.pack_sequence_as(loaded.specs, list(map(tf.constant, batch)))
            for batch in bundle.batches
        )
        self._loaded = replace(loaded, batches=batches)
        self._run = tf.function(
            lambda batch: _strategy.run(loaded.step, args=(batch,)), autograph=loaded.model is None
        )
        self._put_batch(0)
        self._step()
        self._initial = bundle.variables
        self._watching: dict[bool, _WatchedStep] = {}
        self._variables = _matched(bundle.variables, created, log.variables())
        self._reset()

    def exchanged_bytes(self) -> dict[str, int | None]:
        """Return the bytes that each collective op sends on from a replica, None if unknown."""
        count = _strategy.num_replicas_in_sync
        found: dict[str, int | None] = {}
        graph = self._run.get_concrete_function(self._batch).graph
        for op in graph.get_operations():
            if op.type not in COLLECTIVE_KINDS:
                continue
            part = 2 / count if op.type.startswith(_REDUCTION) else 1.0
            of, found[op.name] = op.inputs[0], None
            if of.shape.is_fully_defined():
                held = of.shape.num_elements() * of.dtype.size
                found[op.name] = round(part * (count - 1) * held)
        return found

    def timed(self, batch: int, steps: int) -> list[int]:
        """Run and time steps on a batch."""
        self._put_batch(batch)
        return [timed(self._step) for _ in range(steps)]

    def marked(self, steps: int) -> None:
        """Run steps, each marked for the profiler."""
        self._put_batch(0)
        run_marked(self._step, steps)

    def unexchanged(self) -> tuple[str, ...]:
        """Return the variables that are updated without what other replicas computed."""
        self._put_batch(0)
        return self._watched(draws=True).unexchanged(self._batch)

    def results(self, steps: int, *, draws: bool, seed: int | None) -> list[StepResults]:
        """Return what steps from the initial state compute, for each replica of this process.

        With a ``seed`` that state is rounded by it.
        """
        watched = self._watched(draws=draws)
        initial = self._initial if seed is None else rounded(self._initial, seed)
        self._reset(initial)

        def batch(number: int) -> Any:
            self._put_batch(number)
            return self._batch

        found = watched.results(steps, batch, initial)
        self._reset()
        return found

    def _watched(self, *, draws: bool) -> _WatchedStep:
        if draws not in self._watching:  # Tracing a large step takes seconds.
            self._watching[draws] = _WatchedStep(
                _strategy, self._loaded, self._variables, draws=draws
            )
        return self._watching[draws]

    def _step(self) -> None:
        """Run a step and wait until its outputs are there."""
        for output in tf.nest.flatten(self._run(self._batch)):
            for tensor in _strategy.experimental_local_results(output):
                if hasattr(tensor, "numpy"):
                    tensor.numpy()

    def _put_batch(self, number: int) -> None:
        """Give each replica of this process its share of an example batch, on its device."""
        loaded, count = self._loaded, _strategy.num_replicas_in_sync
        assert loaded.batch_size is not None
        size, number = loaded.batch_size // count, number % len(loaded.batches)
        shares = [loaded.part(i * size, (i + 1) * size) for i in range(count)]
        parts = [tf.nest.flatten(share.batches[number]) for share in shares]
        devices = _strategy.extended.worker_devices

        def part_of(place: int) -> Any:
            def of_replica(context: Any) -> Any:
                replica = context.replica_id_in_sync_group
                with tf.device(devices[replica % len(devices)]):
                    return tf.identity(parts[replica][place])

            return _strategy.experimental_distribute_values_from_function(of_replica)

        values = [part_of(place) for place in range(len(parts[0]))]
        self._batch = tf.nest.pack_sequence_as(loaded.specs, values)

    def _reset(self, values: Mapping[str, Any] | None = None) -> None:
        with _strategy.scope():
            for name, variable in self._variables.items():
                variable.assign((values or self._initial)[name])


def _matched(
    values: Mapping[str, Any], created: Mapping[str, int], variables: list[Any | None]
) -> dict[str, Any]:
    """Return the variable for each value.

    Raises:
        AdvisorError: there is none of that place and shape.
    """
    found = {}
    for name, value in values.items():
        place = created.get(name)
        variable = variables[place] if place is not None and place < len(variables) else None
        if variable is None or tuple(variable.shape) != value.shape:
            raise AdvisorError(
                f"variable {name!r} is missing or has another shape under the strategy"
            )
        found[name] = variable
    return found


_COLLECTIVE = ("Collective", "NcclAllReduce")
# What is exchanged within these is not seen: nothing is said of what comes of them.
_OPAQUE = BRANCH_KINDS | CALL_KINDS | LOOP_KINDS
_SIZE_KINDS = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
# Ops that take a handle and leave what it stands for as it is.
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInit")


def unexchanged(
    nodes: Sequence[Node],
    samples: Mapping[str, int],
    variables: Mapping[str, str],
    replicas: int,
) -> tuple[str, ...]:
    """Return the variables that are updated from the samples of some replicas alone.

    ``nodes`` have producers first. ``samples`` has the replica of each input that holds samples,
    ``variables`` the variable of each handle: a replica's own copy of it.
    """
    everyone = frozenset(range(replicas))
    nobody: frozenset[int] = frozenset()
    held: dict[str, frozenset[int]] = {}
    while True:
        before = dict(held)
        sources: dict[str, frozenset[int]] = {}
        for node in nodes:
            found = nobody.union(*(sources[_made_by(*each)] for each in node.inputs))
            handles = [p.name for p, _ in node.inputs if p.name in variables]
            if node.name in samples:
                found = frozenset({samples[node.name]})
            elif node.kind in _SIZE_KINDS | _OPAQUE or node.kind.startswith(_COLLECTIVE):
                found = nobody
            elif handles and node.kind.startswith(_READS):
                found = found.union(*(held.get(handle, nobody) for handle in handles))
            elif handles and found < everyone:
                for handle in handles:
                    held[handle] = held.get(handle, nobody) | found
            sources[node.name] = nobody if found == everyone else found
        if held == before:
            break
    return tuple(dict.fromkeys(variables[handle] for handle, found in held.items() if found))


def _made_by(producer: Node, port: int) -> str:
    """Return the op that makes a tensor; a custom gradient's `IdentityN` hands many on."""
    while producer.kind == "IdentityN":
        producer, port = producer.inputs[port]
    return producer.name


class _WatchedStep:
    """A step under a strategy with what its updates are given as outputs."""

    def __init__(
        self, strategy: Any, loaded: LoadedStep, variables: Mapping[str, Any], *, draws: bool
    ) -> None:
        """Take the step and its variables; unless it ``draws``, it is traced to draw constants."""
        self._strategy, self._variables, self._draws = strategy, variables, draws
        self._loaded = loaded
        self._copies = {
            id(copy.handle): (name, replica)
            for name, variable in variables.items()
            if variable.synchronization is not tf.VariableSynchronization.ON_READ
            for replica, copy in enumerate(strategy.experimental_local_results(variable))
        }
        self._updates: list[roles.Update] = []
        self._owners: dict[str, tuple[str, int]] = {}
        self._written: set[tuple[str, int]] = set()

        def added() -> dict[str, Any]:
            graph = tf.compat.v1.get_default_graph()
            nodes = graph.as_graph_def().node
            self._owners = self._handles(graph)
            self._written = {self._owners[handle] for handle in roles.written(nodes, self._owners)}
            self._updates = roles.updates(nodes, self._owners)
            names = roles.tensors(self._updates)
            return {name: graph.get_tensor_by_name(roles.tensor_name(name)) for name in names}

        found = tf.autograph.experimental.do_not_convert(added)
        self._function = tf.function(
            lambda batch: (strategy.run(loaded.step, args=(batch,)), found()),
            autograph=loaded.model is None,
        )

    def unexchanged(self, batch: Any) -> tuple[str, ...]:
        """Return variables that are updated from the samples of some replicas alone."""
        graph = self._concrete(batch).graph
        here = len(self._strategy.extended.worker_devices)
        size = self._loaded.batch_size
        is_split = [
            bool(spec.shape.rank) and spec.shape[0] == size
            for spec in tf.nest.flatten(self._loaded.specs)
        ]
        # What the step captures comes behind its arguments.
        places = [tensor.op.name for tensor in graph.inputs[: len(is_split) * here]]
        return unexchanged(
            in_order(read(graph.get_operations())),
            {name: i % here for i, name in enumerate(places) if is_split[i // here]},
            {handle: name for handle, (name, _) in self._handles(graph).items()},
            self._strategy.num_replicas_in_sync,
        )

    def results(
        self, steps: int, batch: Callable[[int], Any], initial: Mapping[str, Any]
    ) -> list[StepResults]:
        """Return what each replica of this process computes; its outputs are its own."""
        replicas = range(len(self._strategy.extended.worker_devices))
        found: list[dict[str, list[AppliedUpdate]]] = [{} for _ in replicas]
        for number in range(steps):
            values = batch(number)
            self._concrete(values)
            _, fetched = self._function(values)
            fetched = {name: tensor.numpy() for name, tensor in fetched.items()}
            for handle, given in roles.given_in_step(self._updates, fetched, number).items():
                name, replica = self._owners[handle]
                found[replica].setdefault(name, []).extend(given)
        with self._strategy.scope():
            state = {name: variable.numpy() for name, variable in self._variables.items()}
        return [
            StepResults(
                outputs=(),
                before=initial,
                state=state | self._own_values(replica),
                given={name: self._given(name, replica, found) for name in self._variables},
            )
            for replica in replicas
        ]

    def _given(
        self, name: str, replica: int, found: Sequence[Mapping[str, list[AppliedUpdate]]]
    ) -> tuple[AppliedUpdate, ...] | None:
        """Return what a replica's updates of a variable were given, None if it is not known.

        A replica may be assigned what another one's copy became, as a count of steps is.
        """
        given = tuple(found[replica].get(name, ()))
        is_read_together = all(owner != name for owner, _ in self._copies.values())
        is_unknown = not given and (name, replica) in self._written
        return None if is_read_together or is_unknown else given

    def _own_values(self, replica: int) -> dict[str, Any]:
        return {
            name: self._strategy.experimental_local_results(self._variables[name])[of].numpy()
            for name, of in self._copies.values()
            if of == replica
        }

    def _handles(self, graph: Any) -> dict[str, tuple[str, int]]:
        """Return variable and replica by the op of each handle that the step takes."""
        return {
            inner.op.name: self._copies[id(outer)]
            for outer, inner in graph.captures
            if id(outer) in self._copies
        }

    def _concrete(self, batch: Any) -> Any:
        with nullcontext() if self._draws else tracing_constant_draws():
            return self._function.get_concrete_function(batch)
