"""How each tensor of a split step is merged: along which axis, and as what."""

from __future__ import annotations

from dataclasses import replace
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.candidates.batch_split.plan import own_of_replicas
from placement_advisor.candidates.batch_split.split_graph import Merge
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Role
from placement_advisor.graph.step_limit import step_limit_s
from placement_advisor.tf.failures import run_failure, step_without_end
from placement_advisor.tf.split.merging import Merging, Repeated, merges, tensors_of
from placement_advisor.tf.split.own_samples import Differing, own_samples, parts_of
from placement_advisor.tf.verify.held import with_constant_draws
from placement_advisor.tf.verify.rounding import rounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.plan import SplitPlan, Tensor
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.trace.bundle import Bundle
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.tracer import TracedStep

_ROUNDING_SEED = 20_203
# Types of tensors that stand for something else; a session takes no values for them.
_NO_VALUES = frozenset({"resource", "variant"})


def batch_axes(plan: SplitPlan, whole: FlatStep, share: FlatStep) -> dict[Tensor, int]:
    """Return the axis of the batch of each tensor that grows with it.

    Raises:
        BatchSplitError: one grows along several axes.
    """
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


def found_mergings(
    plan: SplitPlan, whole: TracedStep, parts: Sequence[TracedStep], axes: Mapping[Tensor, int]
) -> tuple[dict[Tensor, Merging], tuple[str, ...]]:
    """Return how to merge each tensor, told from a step on the first example batch.

    And which ops compute something of a replica's own.

    Raises:
        BatchSplitError: it does not end, or does not run on a share; or what comes of it is not
            what the whole batch gives, and neither random numbers nor statistics of the batch
            explain that.
    """
    # Draws of their own would hide whether what comes of them is a mean or a sum.
    first, *others = (
        with_constant_draws(step.flat.bundle(step.batches()[:1])) for step in (whole, *parts)
    )
    shares = [part.loaded.batch_size or 0 for part in parts]
    handed_back = _handed_back(plan, whole)
    names = [node_tensor(tensor, whole.flat) for tensor in (*plan.merged, *handed_back)]
    noisy = rounded(first.variables, _ROUNDING_SEED)
    states, limit_s = [first.variables, noisy], step_limit_s(whole.graph)
    try:
        as_is, as_rounded = tensors_of(first, names, states, limit_s=limit_s)
    except tf.errors.DeadlineExceededError as error:
        raise BatchSplitError(step_without_end(error, whole.graph, limit_s).message) from None
    count = len(plan.merged)

    def on_share(bundle: Bundle, handed: Mapping[Tensor, Any]) -> list[Any]:
        given = {node_tensor(tensor, whole.flat): value for tensor, value in handed.items()}
        return tensors_of(bundle, names[:count], [bundle.variables], given)[0]

    def repeated() -> Repeated | None:
        size = sum(shares)
        fitting = [pair for pair in zip(others, shares, strict=True) if size % pair[1] == 0]
        if not fitting:
            return None
        (part, share), *_ = fitting
        times = size // share
        batch = _repeated(plan, part, times)
        (there,) = tensors_of(replace(first, batches=(batch,)), names, [first.variables])
        handed, *_ = _given(
            dict(zip(handed_back, there[count:], strict=True)), [share] * times, axes
        )
        return Repeated(whole=there[:count], part=on_share(part, handed), times=times)

    given = _given(dict(zip(handed_back, as_is[count:], strict=True)), shares, axes)
    try:
        of_shares = [on_share(*each) for each in zip(others, given, strict=True)]
    except tf.errors.OpError as error:
        reason = run_failure(error).message
        raise BatchSplitError(f"it does not run on a share of its batch: {reason}") from None
    gradients = {t for t in plan.merged if whole.graph.op(t[0]).role is Role.BACKWARD}
    values = as_is[:count], as_rounded[:count], of_shares
    found = merges(plan.merged, *values, shares, axes, gradients)
    if any(merging.difference for merging in found.values()):
        found = merges(plan.merged, *values, shares, axes, gradients, repeated())
    each_value = zip(
        plan.merged, names[:count], as_is[:count], zip(*of_shares, strict=True), strict=True
    )
    differing = {
        tensor: Differing(
            name=name, whole=value, parts=each, merge=found[tensor].merge, axis=axes[tensor]
        )
        for tensor, name, value, each in each_value
        if found[tensor].difference and tensor in axes
    }
    known = dict(zip(names[count:], as_is[count:], strict=True))
    tied = own_samples(first, plan, known, shares, list(differing.values()))
    for tensor, each in differing.items():
        if each.name in tied:
            found[tensor] = replace(found[tensor], difference=0.0)
    wrong = [tensor for tensor, merging in found.items() if merging.difference]
    own = own_of_replicas(whole.graph, plan, wrong)
    for tensor in wrong:
        if isinf(found[tensor].difference) or not own:
            raise BatchSplitError(_not_mergeable(tensor, whole.graph, whole.flat.outputs))
    return found, own


def _repeated(plan: SplitPlan, part: Bundle, times: int) -> tuple[Any, ...]:
    """Return a batch that is the batch of a share several times."""
    (batch, *_) = part.batches
    return tuple(
        np.concatenate([np.asarray(value)] * times) if plan.is_copied(name) else value
        for name, value in zip(part.inputs, batch, strict=True)
    )


def _handed_back(plan: SplitPlan, whole: TracedStep) -> list[Tensor]:
    """Return what replicas read of shared ops that depend on other work of replicas.

    A variable, say, that is read again once it was updated. Replicas of the split step all read
    what came of the whole batch; the trace of a share alone makes it from that share.
    """
    graph = whole.graph
    dtypes = {node.name: [spec.dtype for spec in node.outputs] for node in whole.flat.ops}
    after: set[str] = set()
    found: dict[Tensor, None] = {}
    for op in graph.ops:
        edges = graph.inputs_of(op.name)
        if plan.is_copied(op.name):
            found |= dict.fromkeys(
                (edge.producer, edge.port)
                for edge in edges
                if edge.producer in after
                and not edge.is_control
                and dtypes[edge.producer][edge.port] not in _NO_VALUES
            )
        elif any(edge.producer in plan.replicated or edge.producer in after for edge in edges):
            after.add(op.name)
    return list(found)


def _given(
    values: Mapping[Tensor, Any], shares: Sequence[int], axes: Mapping[Tensor, int]
) -> list[dict[Tensor, Any]]:
    """Return for each replica what it reads of values of the whole batch."""
    found: list[dict[Tensor, Any]] = [{} for _ in shares]
    for tensor, value in values.items():
        axis = axes.get(tensor)
        parts = [value] * len(shares) if axis is None else parts_of(value, shares, axis)
        for known, part in zip(found, parts, strict=True):
            known[tensor] = part
    return found


def assumed_mergings(
    plan: SplitPlan, whole: TracedStep, axes: Mapping[Tensor, int]
) -> tuple[dict[Tensor, Merging], tuple[str, ...]]:
    """Return how tensors are merged in most steps, and ops that compute a replica's own in most."""
    dtypes = {
        (node.name, port): tf.as_dtype(spec.dtype)
        for node in whole.flat.ops
        for port, spec in enumerate(node.outputs)
    }
    found, averaged = {}, []
    for tensor in plan.merged:
        is_float, op = dtypes[tensor].is_floating, whole.graph.op(tensor[0])
        if tensor in axes:
            is_weighted = op.role is Role.BACKWARD and is_float
            merge = Merge.WEIGHTED_CONCAT if is_weighted else Merge.CONCAT
        else:
            merge = Merge.MEAN if is_float else Merge.SAME
            if is_float and op.kind != "Sum":  # Metrics add up, statistics are means.
                averaged.append(tensor)
        found[tensor] = Merging(merge=merge, difference=0.0)
    return found, own_of_replicas(whole.graph, plan, averaged)


def _not_mergeable(tensor: Tensor, graph: OpGraph, outputs: Sequence[str]) -> str:
    what = repr(tensor[0])
    for number, name in enumerate(outputs):
        handed_on = _handed_on(tensor_of(name), graph)
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


def node_tensor(tensor: Tensor, step: FlatStep) -> str:
    """Return the name of a tensor in the step's graph, where a loop is many ops."""
    name, port = tensor
    if name in step.loops:
        name, port = step.loops[name].outputs[port]
    return f"{name}:{port}"


def tensor_of(name: str) -> Tensor:
    """Return the op and port of a tensor's name."""
    op, _, port = name.partition(":")
    return op, int(port or 0)
