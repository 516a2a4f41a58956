"""How the tensors of shares become that of the whole batch, found by computing both.

Model: what holds a part for each sample is put together. All else is taken for a mean, a sum or the
same number for all, whichever comes nearest on an example batch. Statistics of the batch can move a
number so far that the wrong one comes nearest. Of one share over and over they are those of the
share, so that such a batch tells exactly. A loss near zero moves with the last digit of variables,
so that rounding explains the wrong one, too: one that needs no such explanation is the right one.
Where none comes clearly nearest, as for zeros, or where shares fit into no batch and statistics
move a gradient that nearly cancels, the tensor goes like most others: a gradient as gradients do,
which a loss makes all means or all sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.candidates.batch_split.split_graph import Merge
from placement_advisor.graph.step_limit import MOST_LIMIT_S
from placement_advisor.measurement.verification import NOISE_MARGIN
from placement_advisor.tf.place.placed_step import assignments, table_imports
from placement_advisor.tf.verify.rounding import relative_difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.tf.trace.bundle import Bundle

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
