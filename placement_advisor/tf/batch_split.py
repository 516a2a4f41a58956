"""A step whose batch is split among replicas: traced at its shares, put together, ready to run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.batch_split.plan import own_of_replicas, plan_split
from placement_advisor.batch_split.programs import SPLIT, share_folder
from placement_advisor.batch_split.split_graph import SplitGraph, split_graph
from placement_advisor.batch_split.wiring import Merge, Wiring
from placement_advisor.errors import BatchSplitError, ModelError
from placement_advisor.op import Role
from placement_advisor.tf.answers import TracedShare, TracedSplit
from placement_advisor.tf.merging import Merging, merges, tensors_of
from placement_advisor.tf.results import rounded
from placement_advisor.tf.split_graph_def import split_graph_def, split_loops
from placement_advisor.tf.tracer import trace_step, traced_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.batch_split.plan import SplitPlan, Tensor
    from placement_advisor.graph import OpGraph
    from placement_advisor.tf.bundle import Bundle
    from placement_advisor.tf.captures import State
    from placement_advisor.tf.flat_step import FlatStep
    from placement_advisor.tf.tracer import TracedStep
    from placement_advisor.tf.v1_loops import Loop


_ROUNDING_SEED = 20_203


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStep:
    """A step whose batch is split, as an op graph and, with its state, as what can be run.

    ``weak`` has the whole batch on every replica; it cannot be run. ``mergings`` says how
    replicas' tensors become one. ``own`` are ops that compute something of a replica's own.
    """

    split: SplitGraph
    weak: SplitGraph
    wiring: Wiring
    mergings: Mapping[Tensor, Merging]
    whole: TracedStep
    shares: tuple[TracedStep, ...]
    own: tuple[str, ...]

    def graph_def(self) -> Any:
        """Return the split step as a GraphDef."""
        shares = [share.flat for share in self.shares]
        return split_graph_def(self.whole.flat, shares, self.wiring, self.split.graph)

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
        return tuple(
            _reference(self.wiring.tensor(_tensor(name), None)) for name in self.whole.flat.outputs
        )

    @property
    def targets(self) -> tuple[str, ...]:
        """The ops that must run."""
        return tuple(
            name for target in self.whole.flat.targets for name in self.wiring.befores(target, None)
        )

    @property
    def loops(self) -> dict[str, Loop]:
        """What loops of the op graph stand for."""
        return split_loops(self.whole.flat, [share.flat for share in self.shares], self.wiring)

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


def split_workload(samples: tuple[int, ...], folder: str | None) -> TracedSplit | BatchSplitError:
    """Split the batch of the traced workload of this process, or say why that cannot be done.

    Bundles of the split step and of each share go into ``folder``, as `SPLIT` and `share_folder`.
    Without one no step runs.
    """
    try:
        step = split_step(traced_step(), samples, run=folder is not None)
        if folder is not None:
            _save(step.bundle(), Path(folder) / SPLIT)
            for share in step.shares:
                bundle = share.flat.bundle(share.batches())
                _save(bundle, Path(folder) / share_folder(share.loaded.batch_size or 0))
    except BatchSplitError as error:
        return error
    except ModelError as error:
        return BatchSplitError(error.message)
    return TracedSplit(
        split=step.split,
        weak=step.weak,
        samples=samples,
        shares={
            share.loaded.batch_size or 0: TracedShare(graph=share.graph, members=share.members())
            for share in step.shares
        },
        own=step.own,
    )


def trace_shares(sizes: tuple[int, ...], folder: str) -> dict[int, TracedShare] | BatchSplitError:
    """Trace the workload of this process at several batch sizes, or say why that cannot be done.

    A bundle of each goes into ``folder``, as `share_folder`.
    """
    whole = traced_step()
    found = {}
    try:
        for size in sizes:
            share = whole if size == whole.loaded.batch_size else _share(whole, 0, size)
            _save(share.flat.bundle(share.batches()), Path(folder) / share_folder(size))
            found[size] = TracedShare(graph=share.graph, members=share.members())
    except BatchSplitError as error:
        return error
    except ModelError as error:
        return BatchSplitError(error.message)
    return found


def _share(whole: TracedStep, start: int, stop: int) -> TracedStep:
    try:
        return trace_step(whole.path, whole.loaded.part(start, stop))
    except ModelError as error:
        reason = error.message.strip().splitlines()[-1].strip()
        raise BatchSplitError(f"it takes no batch of {stop - start}: {reason}") from None


def _save(bundle: Bundle, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    bundle.save(folder)


def split_step(whole: TracedStep, shares: Sequence[int], *, run: bool = True) -> SplitStep:
    """Trace a step at each share of its batch and put the split step together.

    Unless it may ``run``, how tensors are merged is assumed from their sizes and types.

    Raises:
        BatchSplitError: the batch cannot be split, or not so.
    """
    size = whole.loaded.batch_size
    if size is None:
        raise BatchSplitError("the size of its batch is not known")
    if sum(shares) != size:
        raise BatchSplitError(f"shares of {sum(shares)} samples do not make its batch of {size}")
    if not all(0 < share < size for share in shares):
        raise BatchSplitError(
            f"a batch of {size} cannot be shared as {', '.join(map(str, shares))}"
        )
    traces: dict[int, TracedStep] = {}
    parts = []
    start = 0
    for share in shares:
        stop = start + share
        if share not in traces:
            traces[share] = _share(whole, start, stop)
        parts.append(replace(traces[share], loaded=whole.loaded.part(start, stop)))
        start = stop
    outputs = [_tensor(name) for name in whole.flat.outputs]
    plan = plan_split(whole.graph, parts[0].graph, outputs)
    for part in parts[1:]:
        plan_split(whole.graph, part.graph, outputs)
    axes = _axes(plan, whole.flat, parts[0].flat)
    if run:
        mergings, own = _mergings(plan, whole, parts, axes)
    else:
        mergings = _assumed(plan, whole, axes)
        means = [t for t, m in mergings.items() if m.merge is Merge.MEAN]
        averaged = [tensor for tensor in means if whole.graph.op(tensor[0]).kind != "Sum"]
        own = own_of_replicas(whole.graph, plan, averaged)
    wiring = Wiring(
        plan=plan,
        shares=tuple(shares),
        merges={tensor: merging.merge for tensor, merging in mergings.items()},
        axes=axes,
    )
    ends = outputs, whole.flat.targets
    split = split_graph(whole.graph, [part.graph for part in parts], wiring, *ends)
    alike = replace(wiring, shares=(size,) * len(parts))
    weak = split_graph(whole.graph, [whole.graph] * len(parts), alike, *ends)
    return SplitStep(
        split=split,
        weak=weak,
        wiring=wiring,
        mergings=mergings,
        whole=whole,
        shares=tuple(parts),
        own=own,
    )


def _axes(plan: SplitPlan, whole: FlatStep, share: FlatStep) -> dict[Tensor, int]:
    """Return the axis of the batch of each tensor that grows with it."""
    sizes = [
        {(node.name, port): spec for node in step.ops for port, spec in enumerate(node.outputs)}
        for step in (whole, share)
    ]
    found = {}
    for tensor in (*plan.merged, *plan.divided):
        here, there = (known[tensor].shape for known in sizes)
        if here is None or there is None:
            found[tensor] = 0
            continue
        differing = [
            axis for axis, pair in enumerate(zip(here, there, strict=True)) if len({*pair}) > 1
        ]
        if len(differing) == 1:
            found[tensor] = differing[0]
        elif differing:
            raise BatchSplitError(f"{tensor[0]!r} holds a number for each pair of samples")
    return found


def _mergings(
    plan: SplitPlan, whole: TracedStep, parts: Sequence[TracedStep], axes: Mapping[Tensor, int]
) -> tuple[dict[Tensor, Merging], tuple[str, ...]]:
    """Return how to merge each tensor, told from a step on the first example batch.

    And which ops compute something of a replica's own.

    Raises:
        BatchSplitError: what comes of it is not what the whole batch gives, and neither random
            numbers nor statistics of the batch explain that.
    """
    first, *others = (step.flat.bundle(step.batches()[:1]) for step in (whole, *parts))
    wanted = [_node(tensor, whole.flat) for tensor in plan.merged]
    noisy = rounded(first.variables, _ROUNDING_SEED)
    as_is, as_rounded = tensors_of(first, wanted, [first.variables, noisy])
    found = merges(
        plan.merged,
        as_is,
        as_rounded,
        [tensors_of(bundle, wanted, [bundle.variables])[0] for bundle in others],
        [part.loaded.batch_size or 0 for part in parts],
        axes,
    )
    wrong = [tensor for tensor, merging in found.items() if merging.difference]
    own = own_of_replicas(whole.graph, plan, wrong)
    for tensor in wrong:
        if isinf(found[tensor].difference) or not own:
            raise BatchSplitError(_not_mergeable(tensor, whole.graph, whole.flat.outputs))
    return found, own


def _assumed(
    plan: SplitPlan, whole: TracedStep, axes: Mapping[Tensor, int]
) -> dict[Tensor, Merging]:
    """Return how tensors are merged in most steps."""
    dtypes = {
        (node.name, port): tf.as_dtype(spec.dtype)
        for node in whole.flat.ops
        for port, spec in enumerate(node.outputs)
    }
    found = {}
    for tensor in plan.merged:
        is_float = dtypes[tensor].is_floating
        if tensor in axes:
            is_gradient = whole.graph.op(tensor[0]).role is Role.BACKWARD
            merge = Merge.WEIGHTED_CONCAT if is_gradient and is_float else Merge.CONCAT
        else:
            merge = Merge.MEAN if is_float else Merge.SAME
        found[tensor] = Merging(merge=merge, difference=0.0)
    return found


def _not_mergeable(tensor: Tensor, graph: OpGraph, outputs: Sequence[str]) -> str:
    what = repr(tensor[0])
    for number, name in enumerate(outputs):
        handed_on = _handed_on(_tensor(name), graph)
        if tensor in handed_on:
            what = f"output {number} ({handed_on[-1][0]!r})"
            break
    return (
        f"{what} cannot be put together from shares of the batch: it holds no part for each "
        "sample, and is neither their mean nor their sum"
    )


def _handed_on(output: Tensor, graph: OpGraph) -> list[Tensor]:
    """Return an output of the step, and what it hands on, to the tensor that the user returned."""
    found = [output]
    while graph.op(found[-1][0]).kind == "Identity":
        (edge, *_) = (e for e in graph.inputs_of(found[-1][0]) if not e.is_control)
        found.append((edge.producer, edge.port))
    return found


def _node(tensor: Tensor, step: FlatStep) -> str:
    name, port = tensor
    if name in step.loops:
        name, port = step.loops[name].outputs[port]
    return f"{name}:{port}"


def _tensor(name: str) -> Tensor:
    op, _, port = name.partition(":")
    return op, int(port or 0)


def _reference(tensor: Tensor) -> str:
    return f"{tensor[0]}:{tensor[1]}"
