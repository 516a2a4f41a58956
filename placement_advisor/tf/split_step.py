"""Builds the step of a split batch: traces it at its shares and joins the graphs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import tensorflow as tf

from placement_advisor.candidates.batch_split import plan as split_plan
from placement_advisor.candidates.batch_split import split_graph as batch_graph
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.mirrored_graph import mirrored_graph
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError
from placement_advisor.graph.op_work import elementwise
from placement_advisor.tf import split_merging
from placement_advisor.tf.answers import TracedShare, TracedSplit
from placement_advisor.tf.trace import tracer
from placement_advisor.tf.trace.bundle import Bundle, Split, State
from placement_advisor.tf.trace.flat_step import FlatStep, suffix_functions
from placement_advisor.tf.trace.loops import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.op_work.signature import TensorSpec
    from placement_advisor.tf.load.loaded_step import LoadedStep


_FRAME, _SHARED_NAME, _SEED = "frame_name", "shared_name", "seed2"


def split_graph_def(
    whole: FlatStep, shares: Sequence[FlatStep], wiring: batch_graph.Wiring, ops: Container[str]
) -> Any:
    """Return the graph of the split step; ``shares`` has the trace of each replica.

    ``ops`` are the ops of the split step's op graph; no others are written.
    """
    written = whole.graph_def()
    nodes = list(_moved(written, _Names(whole, wiring, None), ops))
    del written.node[:]
    written.node.extend(nodes)
    for replica, share in enumerate(shares):
        part = share.graph_def()
        suffix_functions(part, f"_replica_{replica}")
        written.node.extend(_moved(part, _Names(share, wiring, replica), ops))
        written.library.MergeFrom(part.library)
    specs = whole.specs()
    for added in wiring.added():
        if added.name in ops:
            _append(written, added, specs, len(shares))
    return written


def _moved(trace: Any, names: _Names, ops: Container[str]) -> Iterator[Any]:
    return (names.moved(node) for node in trace.node if names.split_op(node.name) in ops)


class _Names:
    """What the nodes of one trace are called in the split step, and what they read there."""

    def __init__(self, step: FlatStep, wiring: batch_graph.Wiring, replica: int | None) -> None:
        self._wiring, self._replica = wiring, replica
        self._loop_of = {
            member: name for name, loop in step.loops.items() for member in loop.members
        }
        self._leaving = {
            tensor: (name, port)
            for name, loop in step.loops.items()
            for port, tensor in enumerate(loop.outputs)
        }

    def op(self, node: str) -> str:
        """Return the op of the trace's op graph that a node belongs to."""
        return self._loop_of.get(node, node)

    def split_op(self, node: str) -> str | None:
        """Return the op of the split step that a node goes to, None if its copies are elsewhere."""
        op, plan = self.op(node), self._wiring.plan
        is_here = op not in plan.replicated if self._replica is None else plan.is_copied(op)
        return self._wiring.copy(op, self._replica) if is_here else None

    def loop(self, loop: Loop) -> Loop:
        """Return a loop of the trace as one of the split step."""
        return Loop(
            members=tuple(self._copy(member, self._replica) for member in loop.members),
            outputs=tuple((self._copy(name, self._replica), port) for name, port in loop.outputs),
        )

    def moved(self, node: Any) -> Any:
        """Return a node of the trace as a node of the split step."""
        moved = tf.compat.v1.NodeDef()
        moved.CopyFrom(node)
        moved.name = self._copy(node.name, self._replica)
        del moved.input[:]
        for reference in node.input:
            moved.input.extend(self._read(reference, node.name))
        if self._replica is not None and moved.name != node.name:
            for attribute in (_FRAME, _SHARED_NAME):
                if attribute in moved.attr:
                    scope = batch_graph.replica_copy("", self._replica).encode()
                    moved.attr[attribute].s = scope + moved.attr[attribute].s
            if moved.attr[_SEED].i if _SEED in moved.attr else 0:
                moved.attr[_SEED].i += self._replica  # Else all draw the same numbers.
        return moved

    def _copy(self, node: str, replica: int | None) -> str:
        is_copied = self._wiring.copy(self.op(node), replica) != self.op(node)
        return batch_graph.replica_copy(node, replica) if is_copied else node

    def _read(self, reference: str, reader: str) -> list[str]:
        if reference.startswith("^"):
            befores = self._wiring.befores(self.op(reference[1:]), self._replica)
            replicas = range(len(befores)) if len(befores) > 1 else [self._replica]
            return [f"^{self._copy(reference[1:], replica)}" for replica in replicas]
        name, _, port = reference.partition(":")
        tensor = name, int(port or 0)
        leaving = self._leaving.get(tensor)
        is_within = self.op(name) != name and self.op(name) == self.op(reader)
        if is_within or (leaving is None and self.op(name) != name):
            return [_input_reference((self._copy(name, self._replica), tensor[1]))]
        wanted = leaving or tensor
        moved = self._wiring.tensor(wanted, self._replica)
        for replica in (self._replica, 0):
            if moved == (self._wiring.copy(wanted[0], replica), wanted[1]):
                moved = self._copy(name, replica), tensor[1]
                break
        return [_input_reference(moved)]


def _append(
    written: Any,
    added: batch_graph.Added,
    specs: Mapping[split_plan.Tensor, TensorSpec],
    replicas: int,
) -> None:
    node = written.node.add(name=added.name, op=added.kind)
    node.input.extend(map(_input_reference, added.inputs))
    dtype = tf.int32 if added.like is None else tf.as_dtype(specs[added.like].dtype)
    if added.kind == "Const":
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(added.value, dtype=dtype))
        return
    node.attr["T"].type = dtype.as_datatype_enum
    if added.kind in ("AddN", "ConcatV2"):
        node.attr["N"].i = replicas
    if added.kind == "ConcatV2":
        node.attr["Tidx"].type = tf.int32.as_datatype_enum
    if added.kind == "SplitV":
        node.attr["num_split"].i = replicas
        node.attr["Tlen"].type = tf.int32.as_datatype_enum


def _input_reference(tensor: split_plan.Tensor) -> str:
    name, port = tensor
    return f"{name}:{port}" if port else name


_REASON = re.compile(r"^(?:.*: |\s*)((?:\w+\.)*\w*(?:Error|Exception): .+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStep:
    """A step whose batch is split, as an op graph and, with its state, as what can be run.

    ``graphs`` are those of `TracedSplit`; what can be run is that of `FAMILY`. ``own`` are ops that
    compute something of a replica's own.
    """

    graphs: Mapping[str, batch_graph.SplitGraph]
    traces: batch_graph.SplitTraces
    whole: tracer.TracedStep
    shares: tuple[tracer.TracedStep, ...]
    own: tuple[str, ...]

    @property
    def wiring(self) -> batch_graph.Wiring:
        """How replicas are joined."""
        return self.traces.wiring

    def weak(self) -> dict[str, batch_graph.SplitGraph]:
        """Return the graphs, by family as ``graphs``, with the whole batch for every replica."""
        return _graphs(self.traces.weak(len(self.shares)), self.graphs)

    def graph_def(self) -> Any:
        """Return the split step as a GraphDef."""
        shares = [share.flat for share in self.shares]
        return split_graph_def(
            self.whole.flat, shares, self.wiring, self.graphs[batch_graph.FAMILY].graph
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs: those that are not split, and each replica's share of the others."""
        return tuple(name for name, _, _ in self._columns())

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        """Shape and type of each input."""
        traces = (self.whole, *self.shares)
        specs = [tf.nest.flatten(trace.loaded.specs) for trace in traces]
        return {name: specs[trace][i] for name, trace, i in self._columns()}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that the step returns."""
        tensors = (self.wiring.tensor(each, None) for each in self.traces.outputs)
        return tuple(f"{name}:{port}" for name, port in tensors)

    @property
    def targets(self) -> tuple[str, ...]:
        """The ops that must run."""
        return tuple(
            name for target in self.whole.flat.targets for name in self.wiring.befores(target, None)
        )

    @property
    def loops(self) -> dict[str, Loop]:
        """What loops of the op graph stand for."""
        found = {}
        for replica, trace in ((None, self.whole), *enumerate(self.shares)):
            names = _Names(trace.flat, self.wiring, replica)
            for name, loop in trace.flat.loops.items():
                if (replica is None) != self.wiring.plan.is_copied(name):
                    found[self.wiring.copy(name, replica)] = names.loop(loop)
        return found

    @property
    def state(self) -> State:
        """What the step captured; each replica looks up in a table of its own."""
        state = self.whole.flat.state
        return replace(state, tables=self._copied(state.tables))

    def bundle(self) -> Bundle:
        """Return the split step with the values of its state.

        Raises:
            ModelError: it calls back into Python.
        """
        plain = self.whole.flat.bundle(self.whole.batches())
        batches = [self.whole.batches(), *(share.batches() for share in self.shares)]
        return replace(
            plain,
            graph_def=self.graph_def(),
            inputs=self.inputs,
            outputs=self.outputs,
            targets=self.targets,
            tables=self._copied(plain.tables),
            loops=self.loops,
            batches=tuple(
                tuple(batches[trace][number][i] for _, trace, i in self._columns())
                for number in range(len(self.whole.loaded.batches))
            ),
            split=self._split(),
        )

    @property
    def draws(self) -> bool:
        """Whether replicas draw random numbers of their own."""
        return bool(self._drawn())

    @property
    def statistics(self) -> tuple[str, ...]:
        """The variables that only keep statistics of the batch."""
        return split_plan.kept_statistics(self.whole.graph, self.wiring.plan)

    def _drawn(self) -> list[str]:
        graph = self.whole.graph
        return [name for name in self.own if graph.op(name).kind in elementwise.RANDOM_FORMULAS]

    def _split(self) -> Split:
        plan, graph = self.wiring.plan, self.whole.graph
        of_share = self.shares[0].flat.specs()
        return Split(
            samples=self.wiring.shares,
            finished=tuple(
                (split_merging.node_tensor(tensor, self.whole.flat), self.wiring.axes.get(tensor))
                for tensor in split_plan.finished(graph, plan, self.traces.outputs)
            ),
            growing=frozenset(
                split_merging.node_tensor(tensor, self.whole.flat)
                for tensor, spec in self.whole.flat.specs().items()
                if spec.shape != of_share[tensor].shape
            ),
            draws=self.draws,
            takes_statistics=len(self._drawn()) < len(self.own),
            goes_on=split_plan.goes_on(graph, plan),
            statistics=self.statistics,
        )

    def divided(self, values: Sequence[Any]) -> list[Any]:
        """Return the tensors of ``inputs`` for those of the unsplit step."""
        parts: dict[str, Any] = {}
        for name, value in zip(self.whole.flat.inputs, values, strict=True):
            if self.wiring.plan.is_copied(name):
                shares = tf.split(value, self.wiring.shares)
                parts |= {self.wiring.copy(name, i): part for i, part in enumerate(shares)}
            else:
                parts[name] = value
        return [parts[name] for name in self.inputs]

    def _copied(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return tables under the names that they have in the split step."""
        return {
            self.wiring.copy(name, replica): table
            for name, table in tables.items()
            for replica in (None, *range(len(self.shares)))
            if (replica is None) != self.wiring.plan.is_copied(name)
        }

    def _columns(self) -> list[tuple[str, int, int]]:
        """Return each input's name, its trace (0 is the whole batch), and its place there."""
        found = []
        for i, name in enumerate(self.whole.flat.inputs):
            if self.wiring.plan.is_copied(name):
                found += [(self.wiring.copy(name, r), 1 + r, i) for r in range(len(self.shares))]
            else:
                found.append((name, 0, i))
        return found


def trace_share(whole: tracer.TracedStep, start: int, stop: int) -> tracer.TracedStep:
    """Trace a step on some samples of its batches.

    Raises:
        BatchSplitError: it takes no such batch.
    """
    return _traced(whole, whole.loaded.part(start, stop))


def _traced(whole: tracer.TracedStep, loaded: LoadedStep) -> tracer.TracedStep:
    try:
        return tracer.trace_step(whole.path, loaded, like=whole)
    except ModelError as error:
        # The message of an error ends where the user's lines begin; that of one within a traced
        # function is itself such a stack, and has the reason last.
        reasons = _REASON.findall(error.message) or error.message.strip().splitlines()
        raise BatchSplitError(f"it takes no batch of {loaded.batch_size}: {reasons[-1]}") from None


def split_step(whole: tracer.TracedStep, shares: Sequence[int], *, run: bool = True) -> SplitStep:
    """Trace a step at each share of its batch and put the split step together.

    Unless it may ``run``, how tensors are merged is assumed from their sizes and types.

    Raises:
        BatchSplitError: the batch cannot be split, or not so.
    """
    traces, parts, own = _wired(whole, shares, run=run)
    families = [batch_graph.FAMILY, *([MIRRORED] if len(set(shares)) == 1 else [])]
    return SplitStep(
        graphs=_graphs(traces, families), traces=traces, whole=whole, shares=tuple(parts), own=own
    )


def _graphs(
    traces: batch_graph.SplitTraces, families: Iterable[str]
) -> dict[str, batch_graph.SplitGraph]:
    build = {batch_graph.FAMILY: batch_graph.split_graph, MIRRORED: mirrored_graph}
    return {name: build[name](traces) for name in families}


def _wired(
    whole: tracer.TracedStep, shares: Sequence[int], *, run: bool
) -> tuple[batch_graph.SplitTraces, list[tracer.TracedStep], tuple[str, ...]]:
    """Return the graphs of a split step, its traces by replica, and what is a replica's own."""
    size = whole.loaded.batch_size
    if size is None:
        raise BatchSplitError("the size of its batch is not known")
    if sum(shares) != size:
        raise BatchSplitError(f"shares of {sum(shares)} samples do not make its batch of {size}")
    if not all(0 < share < size for share in shares):
        raise BatchSplitError(
            f"a batch of {size} cannot be shared as {', '.join(map(str, shares))}"
        )
    traces: dict[int, tracer.TracedStep] = {}
    parts = []
    start = 0
    for share in shares:
        stop = start + share
        if share not in traces:
            traces[share] = trace_share(whole, start, stop)
        parts.append(replace(traces[share], loaded=whole.loaded.part(start, stop)))
        start = stop
    outputs = tuple(map(split_merging.tensor_of, whole.flat.outputs))
    plan, *others = (
        split_plan.plan_split(whole.graph, trace.graph, outputs) for trace in traces.values()
    )
    if not run:
        # Whether replicas compute what the whole does is then not seen.
        for share, trace in traces.items():
            split_plan.check_no_pairs(whole.graph, trace.graph, size / share)
    if any(other != plan for other in others):
        raise BatchSplitError(
            "which part of a tensor belongs to a sample depends on the size of the share"
        )
    axes = split_merging.batch_axes(plan, whole.flat, parts[0].flat)
    mergings, own = (
        split_merging.found_mergings(plan, whole, parts, axes)
        if run
        else split_merging.assumed_mergings(plan, whole, axes)
    )
    wiring = batch_graph.Wiring(
        plan=plan,
        shares=tuple(shares),
        merges={tensor: merging.merge for tensor, merging in mergings.items()},
        axes=axes,
    )
    graphs = batch_graph.SplitTraces(
        whole=whole.graph,
        shares={share: trace.graph for share, trace in traces.items()},
        wiring=wiring,
        outputs=outputs,
        targets=whole.flat.targets,
    )
    return graphs, parts, own


P = ParamSpec("P")
R = TypeVar("R")


def _answered(split: Callable[P, R]) -> Callable[P, R | BatchSplitError]:
    """Return the function with an error of the user's as its answer: it says why it cannot be."""

    @wraps(split)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R | BatchSplitError:
        try:
            return split(*args, **kwargs)
        except BatchSplitError as error:
            return error
        except AdvisorError as error:
            return BatchSplitError(error.message)

    return answer


@_answered
def split_workload(samples: tuple[int, ...], folder: str | None, weak: bool = True) -> TracedSplit:
    """Split the batch of the traced workload of this process, or say why that cannot be done.

    Bundles of the split step and of each share go into ``folder``, as `SPLIT` and `share_folder`.
    Without one no step runs. Weak scaling is left out unless ``weak``.
    """
    step = split_step(tracer.traced_step(), samples, run=folder is not None)
    if folder is not None:
        _save(step.bundle(), Path(folder) / split_plan.SPLIT)
    return TracedSplit(
        graphs=step.graphs,
        weak=step.weak() if weak else {},
        samples=samples,
        shares={share.loaded.batch_size or 0: _share(share, folder) for share in step.shares},
        own=step.own,
        draws=step.draws,
        statistics=step.statistics,
    )


@_answered
def trace_split(samples: tuple[int, ...]) -> batch_graph.SplitTraces:
    """Trace the workload of this process at shares of its batch, or say why that cannot be done."""
    return _wired(tracer.traced_step(), samples, run=False)[0]


@_answered
def trace_repeated(times: int) -> OpGraph:
    """Trace the workload of this process on its batch several times over, or say why it cannot.

    The graph differs from that of the batch in sizes alone.
    """
    whole = tracer.traced_step()
    graph = _traced(whole, whole.loaded.repeated(times)).graph
    split_plan.check_alike(graph, whole.graph)
    return graph


@_answered
def trace_shares(sizes: tuple[int, ...], folder: str) -> dict[int, TracedShare]:
    """Trace the workload of this process at several batch sizes, or say why that cannot be done.

    A bundle of each goes into ``folder``, as `share_folder`.
    """
    whole = tracer.traced_step()
    known = {whole.loaded.batch_size: whole}
    return {size: _share(known.get(size) or trace_share(whole, 0, size), folder) for size in sizes}


def _share(trace: tracer.TracedStep, folder: str | None) -> TracedShare:
    """Return a share as the command sees it; its bundle goes into the folder, if there is one."""
    if folder is not None:
        bundle = trace.flat.bundle(trace.batches())
        _save(bundle, Path(folder) / split_plan.share_folder(trace.loaded.batch_size or 0))
    return TracedShare(graph=trace.graph, members=trace.members())


def _save(bundle: Bundle, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    bundle.save(folder)
