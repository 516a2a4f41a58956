"""Traces a mirrored step once more so that it reports what its updates are given.

It also tells which variables are updated without the other replicas.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS
from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.tf.deterministic_graph import tracing_constant_draws
from placement_advisor.tf.trace import roles
from placement_advisor.tf.trace.nodes import in_order, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.tf.load.loaded_step import LoadedStep
    from placement_advisor.tf.trace.nodes import Node


_COLLECTIVE = ("Collective", "NcclAllReduce")
# What is exchanged within these is not seen: nothing is said of what comes of them.
_OPAQUE = BRANCH_KINDS | CALL_KINDS | LOOP_KINDS
_SIZES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
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
            elif node.kind in _SIZES | _OPAQUE or node.kind.startswith(_COLLECTIVE):
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


class WatchedStep:
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
