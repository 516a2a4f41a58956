"""Chooses how tensors of a split step are merged into those of the batch, by computing both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isinf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.candidates.batch_split.plan import SplitPlan, own_of_replicas
from placement_advisor.candidates.batch_split.split_graph import Merge
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Role
from placement_advisor.measurement.verification import NOISE_MARGIN, farthest, largest
from placement_advisor.tf.deterministic_graph import (
    relative_difference,
    rounded,
    with_constant_draws,
)
from placement_advisor.tf.failures import run_failure, step_without_end
from placement_advisor.tf.placed_step import assignments, table_imports
from placement_advisor.tf.step_limit import MOST_LIMIT_S, step_limit_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.tf.trace.bundle import Bundle
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.tracer import TracedStep


v1 = tf.compat.v1
# What adding up in another order does to floats: a hundred times the spacing of float32 (1.2e-7).
# Judgement: more would let statistics of large batches pass for means. Sums of tens of thousands of
# like terms can be off by more, 9e-5 for the gradient of a bias under global average pooling of 32
# images of 28 × 28: such a step is refused, though it could be split.
ROUNDING = 1e-5
# What is nearest only by less than this leaves it open. Judgement: a mean of two shares is half of
# their sum, so the wrong one is off by half or by one, however the right one is moved.
_CLEARLY_NEARER = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How a tensor is merged, and how far what comes of it is from the unsplit step's.

    ``difference`` is relative to the largest value of the unsplit step's tensor; 0 if it is no more
    than what rounding does to that one.
    """

    merge: Merge
    difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What a step computes for tensors on a batch that is one share several ``times``.

    Beside it what it computes on that share alone.
    """

    whole: Sequence[Any]
    part: Sequence[Any]
    times: int


def tensors_of(
    bundle: Bundle,
    wanted: Sequence[str],
    states: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any] = MappingProxyType({}),
    limit_s: float = MOST_LIMIT_S,
) -> list[list[Any]]:
    """Return what a step computes for tensors on its first batch, for each state of its variables.

    ``given`` has tensors within the step whose values are known: they are not computed. The step
    changes no state but that of this call.

    Raises:
        OpError: the step fails, or does not end within the limit.
    """
    graph = tf.Graph()
    with graph.as_default():
        v1.graph_util.import_graph_def(bundle.graph_def, name="")
        assign = assignments(graph, bundle)
        fill = table_imports(graph, bundle)
    feeds = dict(zip((f"{name}:0" for name in bundle.inputs), bundle.batches[0], strict=True))
    feeds |= given
    config = v1.ConfigProto(allow_soft_placement=True)
    config.operation_timeout_in_ms = round(limit_s * 1_000)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    found = []
    with v1.Session(graph=graph, config=config) as session:
        for operation, content in fill:
            session.run(operation, content)
        operations = [operation for operation, _ in assign.values()]
        for state in states:
            # All at once: a session looks through the whole graph for each new set of ops.
            session.run(operations, {feed: state[name] for name, (_, feed) in assign.items()})
            found.append(session.run(list(wanted), feeds))
    return found


def merges(
    tensors: Sequence[Tensor],
    whole: Sequence[Any],
    rounded: Sequence[Any],
    parts: Sequence[Sequence[Any]],
    shares: Sequence[int],
    axes: Mapping[Tensor, int],
    gradients: Set[Tensor],
    repeated: Repeated | None = None,
) -> dict[Tensor, Merging]:
    """Return how to merge each tensor, from its values at the whole batch and at each share.

    ``rounded`` is the whole, computed from state that differs in the last digit. ``axes`` has the
    tensors that hold a part for each sample. ``repeated`` has what tells more, where it is known.
    """
    noise = [
        NOISE_MARGIN * relative_difference(noisy, wanted)
        for wanted, noisy in zip(whole, rounded, strict=True)
    ]
    weights = [share / sum(shares) for share in shares]
    fits = _fits(tensors, whole, noise, parts, weights, axes)
    told = fits
    if repeated is not None:
        alike = [repeated.part] * repeated.times
        weights = [1 / repeated.times] * repeated.times
        seen = _fits(tensors, repeated.whole, noise, alike, weights, axes)
        told = {
            tensor: {merge: apart for merge, apart in seen[tensor].items() if merge in each}
            for tensor, each in fits.items()
        }
    votes = {
        is_gradient: Counter(
            _clear(each) for tensor, each in told.items() if (tensor in gradients) == is_gradient
        )
        for is_gradient in (True, False)
    }
    return {
        tensor: _chosen(each, fits[tensor], votes[tensor in gradients])
        for tensor, each in told.items()
    }


def _fits(
    tensors: Sequence[Tensor],
    whole: Sequence[Any],
    noise: Sequence[float],
    parts: Sequence[Sequence[Any]],
    weights: Sequence[float],
    axes: Mapping[Tensor, int],
) -> dict[Tensor, dict[Merge, float]]:
    """Return how far each way to merge is off.

    It is 0 up to what another order of sums does, and `ROUNDING` where rounding of variables does
    as much, or the tensor counts as zero.
    """
    least = float(np.finfo(np.float32).tiny)
    found: dict[Tensor, dict[Merge, float]] = {}
    for tensor, wanted, free, *given in zip(tensors, whole, noise, *parts, strict=True):
        found[tensor] = {}
        for merge, value in merged(given, weights, axes.get(tensor)):
            apart = relative_difference(value, wanted)
            if apart <= max(free, ROUNDING):
                fits = relative_difference(value, wanted, least) <= ROUNDING
                apart = 0.0 if fits else ROUNDING
            found[tensor][merge] = apart
    return found


def merged(
    given: Sequence[Any], weights: Sequence[float], axis: int | None
) -> Iterable[tuple[Merge, Any]]:
    """Return what the parts of shares make of a tensor, by each way that its type allows."""
    parts = [np.asarray(each) for each in given]
    is_float = np.issubdtype(parts[0].dtype, np.inexact)
    is_number = is_float or np.issubdtype(parts[0].dtype, np.integer)
    if axis is not None:
        yield Merge.CONCAT, np.concatenate(parts, axis)
        if is_float:
            weighted = [part * weight for part, weight in zip(parts, weights, strict=True)]
            yield Merge.WEIGHTED_CONCAT, np.concatenate(weighted, axis)
        return
    if is_float:
        yield Merge.MEAN, sum(p * w for p, w in zip(parts, weights, strict=True))
    if is_number:
        yield Merge.SUM, sum(parts)
    if all(relative_difference(parts[0], part) == 0 for part in parts):
        yield Merge.SAME, parts[0]


def _clear(fits: Mapping[Merge, float]) -> Merge | None:
    """Return the way that fits clearly best, None if there is none."""
    best = _near(fits)
    return best[0] if len(best) == 1 else None


def _near(fits: Mapping[Merge, float]) -> list[Merge]:
    least = min(fits.values(), default=np.inf)
    return [merge for merge, apart in fits.items() if apart * _CLEARLY_NEARER <= least]


def _chosen(
    told: Mapping[Merge, float], fits: Mapping[Merge, float], votes: Counter[Merge | None]
) -> Merging:
    # Of equals the one that most tensors go by; the order of `Merge` decides for the rest.
    if not fits:
        return Merging(merge=Merge.SAME, difference=np.inf)
    best = max(_near(told), key=lambda merge: (votes[merge], -list(Merge).index(merge)))
    return Merging(merge=best, difference=fits[best] if fits[best] > ROUNDING else 0.0)


# Judgement: shares that compute something else do so for most samples.
_FEW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A tensor of which shares make something else than the whole batch does.

    ``name`` is that in the step's graph, ``whole`` its value for the whole batch, ``parts`` those
    of the shares; ``merge`` puts them together along ``axis``.
    """

    name: str
    whole: Any
    parts: Sequence[Any]
    merge: Merge
    axis: int


def own_samples(
    step: Bundle,
    plan: SplitPlan,
    known: Mapping[str, Any],
    shares: Sequence[int],
    tensors: Sequence[Differing],
) -> set[str]:
    """Return those that differ in few samples, and whose parts no other sample changes.

    ``known`` are values within the step that stay as they are.
    """
    few = [tensor for tensor in tensors if _differs_in_few(tensor, shares)]
    own = {tensor.name for tensor in few}
    places = np.arange(sum(shares))
    for replica, (stop, share) in enumerate(zip(accumulate(shares), shares, strict=True)):
        if not own:
            break
        start = stop - share
        samples = start + (places - start) % share
        names, states = [tensor.name for tensor in few], [step.variables]
        (found,) = tensors_of(_on_samples(step, plan, samples), names, states, known)
        for tensor, value in zip(few, found, strict=True):
            ours, theirs = (
                parts_of(each, shares, tensor.axis)[replica] for each in (value, tensor.whole)
            )
            if relative_difference(ours, theirs) > ROUNDING:
                own.discard(tensor.name)
    return own


def _on_samples(step: Bundle, plan: SplitPlan, samples: Any) -> Bundle:
    """Return a step on these samples of its first batch."""
    taken = (
        np.asarray(value)[samples] if plan.is_copied(name) else value
        for name, value in zip(step.inputs, step.batches[0], strict=True)
    )
    return replace(step, batches=(tuple(taken),))


def parts_of(value: Any, shares: Sequence[int], axis: int) -> list[Any]:
    """Return each share's part of a tensor with the same number of rows for each sample."""
    rows = value.shape[axis] // sum(shares)
    return np.split(value, [stop * rows for stop in accumulate(shares)][:-1], axis)


def _differs_in_few(tensor: Differing, shares: Sequence[int]) -> bool:
    size = sum(shares)
    if tensor.whole.shape[tensor.axis] % size:
        return False
    weights = [share / size for share in shares]
    put_together = dict(merged(tensor.parts, weights, tensor.axis))[tensor.merge]
    least = ROUNDING * largest(tensor.whole)
    samples = (parts_of(each, [1] * size, tensor.axis) for each in (put_together, tensor.whole))
    return sum(farthest(*pair) > least for pair in zip(*samples, strict=True)) < _FEW * size


_ROUNDING_SEED = 20_203
# Types of tensors that stand for something else; a session takes no values for them.
_NO_VALUES = frozenset({"resource", "variant"})


def batch_axes(plan: SplitPlan, whole: FlatStep, share: FlatStep) -> dict[Tensor, int]:
    """Return the axis of the batch of each tensor that grows with it.

    Raises:
        BatchSplitError: one grows along several axes.
    """
    specs = whole.specs(), share.specs()
    found = {}
    for tensor in (*plan.merged, *plan.divided):
        here, there = (known[tensor].shape for known in specs)
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
        batches = _on_samples(part, plan, np.tile(np.arange(share), times)).batches
        (there,) = tensors_of(replace(first, batches=batches), names, [first.variables])
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


def _handed_back(plan: SplitPlan, whole: TracedStep) -> list[Tensor]:
    """Return what replicas read of shared ops that depend on other work of replicas.

    A variable, say, that is read again once it was updated. Replicas of the split step all read
    what came of the whole batch; the trace of a share alone makes it from that share.
    """
    graph = whole.graph
    specs = whole.flat.specs()
    after: set[str] = set()
    found: dict[Tensor, None] = {}
    for op in graph.ops:
        edges = graph.inputs_of(op.name)
        if plan.is_copied(op.name):
            found |= dict.fromkeys(
                edge.tensor
                for edge in edges
                if edge.producer in after
                and not edge.is_control
                and specs[edge.tensor].dtype not in _NO_VALUES
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
    specs = whole.flat.specs()
    found, averaged = {}, []
    for tensor in plan.merged:
        is_float, op = tf.as_dtype(specs[tensor].dtype).is_floating, whole.graph.op(tensor[0])
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
        f"{what} cannot be put together from shares of the batch. It has no part for each "
        "sample, and is neither their mean nor their sum"
    )


def _handed_on(output: Tensor, graph: OpGraph) -> list[Tensor]:
    """Return an output of the step, and what it hands on, to the tensor that the user returned."""
    found = [output]
    while graph.op(found[-1][0]).kind == "Identity":
        (edge, *_) = graph.data_inputs(found[-1][0])
        found.append(edge.tensor)
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
