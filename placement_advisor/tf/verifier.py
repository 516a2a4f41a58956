"""Verifies a candidate: compares what its step computes and changes with a reference.

It finds sums that cancel, in which rounding would look like a mistake, and compares split
steps with runs of the unsplit step. Results on disk are plain numbers, since another host may
have written them.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.errors import TestbedError
from placement_advisor.measurement.verification import (
    AppliedUpdate,
    StepResults,
    Verification,
    from_other_values,
    rounding,
    shows,
    verify,
)
from placement_advisor.tf import deterministic_graph
from placement_advisor.tf.trace.roles import op_of, tensor_name, updates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.measurement.verification import Rounding
    from placement_advisor.tf.placed_step import PlacedStep
    from placement_advisor.tf.trace.bundle import Bundle, Split
    from placement_advisor.tf.trace.roles import Update

    Place = Callable[[Bundle, Mapping[str, str]], PlacedStep]


# What cancels is a few ops away from the update: behind an optimizer's arithmetic, and clipping
# (Adam with clipped gradients: nine).
_MOST_OPS_BEHIND = 20
# What an op does to a variable that it takes the handle of, if it only reads it.
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
# Ops whose values no other op of the step has made.
_SOURCES = frozenset({"Const", "ReadVariableOp", "VarHandleOp", "Placeholder", "ResourceGather"})


def find_cancelling(
    place: Place,
    bundle: Bundle,
    device_of: Mapping[str, str],
    variables: Sequence[str],
    candidate: Bundle,
) -> tuple[deterministic_graph.Cancelling, ...]:
    """Return where sums cancel that variables are updated by, in the unsplit step.

    Those are left out that cannot be shown in the same way in ``candidate``.
    """
    nodes = {node.name: node for node in bundle.graph_def.node}
    every = updates(nodes.values(), bundle.variables)
    given = [each.tensor for each in every if each.variable in set(variables)]
    clear = _clear(place, bundle, device_of, nodes, given, every)
    found = []
    for name in dict.fromkeys(map(op_of, clear)):
        inputs = {
            number: tensor_name(reference)
            for number, reference in enumerate(nodes[name].input)
            if tensor_name(reference) in clear
        }
        is_noise = not clear.get(f"{name}:0", True)
        if is_noise and inputs and all(clear[tensor] for tensor in inputs.values()):
            found += [
                deterministic_graph.Cancelling(name, number, tensor)
                for number, tensor in inputs.items()
                if "T" in nodes[name].attr and _may_be_shown(name, tensor, candidate)
            ]
    return tuple(found)


def _clear(
    place: Place,
    bundle: Bundle,
    device_of: Mapping[str, str],
    nodes: Mapping[str, Any],
    given: Sequence[str],
    every: Sequence[Update],
) -> dict[str, bool]:
    """Say of tensors, and of what those that are noise are made of, whether a mistake shows."""
    states = (
        bundle.variables,
        deterministic_graph.rounded(bundle.variables, deterministic_graph.ROUNDING_SEED),
    )
    running: list[PlacedStep] = []
    found: dict[str, bool] = {}
    # Of a large model it takes seconds to put the state back, and there are many turns.
    is_initial = False
    try:
        running.extend(place(bundle, device_of) for _ in states)
        wanted = [tensor_name(reference) for reference in given]
        for _ in range(_MOST_OPS_BEHIND):
            # What a slot holds comes from its own updates.
            wanted += [
                tensor_name(each.tensor)
                for each in every
                if each.variable in {_read(nodes[op_of(name)]) for name in wanted}
            ]
            wanted = [
                name
                for name in dict.fromkeys(wanted)
                if name not in found and nodes[op_of(name)].op not in _SOURCES
            ]
            if not wanted:
                break
            values = []
            for step, state in zip(running, states, strict=True):
                if not is_initial:
                    step.reset(state)
                values.append(step.tensors(wanted))
            is_initial = _only_reads(nodes, wanted, bundle.variables)
            behind: list[str] = []
            for name, one, two in zip(wanted, *values, strict=True):
                if np.asarray(one).dtype.kind == "f":
                    found[name] = shows(one, two)
                    behind += () if found[name] else nodes[op_of(name)].input
            wanted = [tensor_name(each) for each in behind if not each.startswith("^")]
    finally:
        for step in running:
            step.close()
    return found


def _only_reads(
    nodes: Mapping[str, Any], tensors: Sequence[str], variables: Mapping[str, Any]
) -> bool:
    """Say whether all that tensors are computed from does no more than read variables."""
    behind = list(map(op_of, tensors))
    seen = set(behind)
    while behind:
        node = nodes[behind.pop()]
        before = {op_of(reference) for reference in node.input}
        if node.op not in _READS and not before.isdisjoint(variables):
            return False
        behind += before - seen
        seen |= before
    return True


def _read(node: Any) -> str | None:
    """Return the variable that an op reads, None if it does something else."""
    return op_of(node.input[0]) if node.op == "ReadVariableOp" else None


def _may_be_shown(op: str, tensor: str, bundle: Bundle) -> bool:
    """Say whether an edit does to all shares together what it does to the whole batch."""
    if bundle.split is None:
        return True
    is_shared = any(node.name == op for node in bundle.graph_def.node)
    return is_shared or tensor in bundle.split.growing


def results_of_shares(
    step: PlacedStep,
    split: Split,
    samples: Sequence[int],
    steps: int,
    values: Mapping[str, Any] | None,
    order_seed: int | None = None,
) -> StepResults:
    """Return what replicas that take statistics of their own samples compute together.

    ``step`` is the unsplit one, ``values`` take the place of its initial state. ``samples`` are
    those of each share, which may be the whole batch. With a seed the samples of each come in an
    order that is drawn.
    """
    bundle, size = step.bundle, sum(samples)
    orders = _orders(samples, order_seed)
    names = [tensor_name(name) for name, _ in split.finished]
    before = state = values or bundle.variables
    outputs: list[Any] = []
    given: dict[str, tuple[AppliedUpdate, ...]] = {}
    for number in range(steps):
        batch = bundle.batches[number % len(bundle.batches)]
        parts, start = [], 0
        for share, order in zip(samples, orders, strict=True):
            step.reset(state)
            step.put(_with_samples(batch, size, np.resize(start + order, size)))
            parts.append(step.tensors(names))
            start += share
        feeds = {
            name: _joined([part[i] for part in parts], axis, samples, orders)
            for i, (name, (_, axis)) in enumerate(zip(names, split.finished, strict=True))
        }
        step.reset(state)
        step.put(batch)
        computed, added = step.step(number, feeds)
        outputs += computed
        given = {name: (*given.get(name, ()), *added[name]) for name in added}
        state = step.state()
    return StepResults(outputs=tuple(outputs), before=before, state=state, given=given)


def _orders(samples: Sequence[int], seed: int | None) -> list[Any]:
    """Return the order of each share's samples: as they are, or one that is drawn."""
    if seed is None:
        return [np.arange(share) for share in samples]
    random = np.random.default_rng(seed)
    return [random.permutation(share) for share in samples]


def _with_samples(batch: Sequence[Any], size: int, rows: Any) -> list[Any]:
    """Return a batch of these samples."""
    return [a[rows] if a.ndim and a.shape[0] == size else a for a in map(np.asarray, batch)]


def _places(order: Any, length: int) -> Any:
    """Return where the parts of each sample are, by sample, in a tensor that was made in order."""
    each = length // len(order)
    return (np.argsort(order)[:, None] * each + np.arange(each)).ravel()


def _joined(
    parts: Sequence[Any], axis: int | None, samples: Sequence[int], orders: Sequence[Any]
) -> Any:
    """Return what replicas put together; each part is that of a batch of one share repeated."""
    arrays, total = [np.asarray(part) for part in parts], sum(samples)
    if axis is not None:
        sizes = [
            array.shape[axis] * share // total for array, share in zip(arrays, samples, strict=True)
        ]
        rows = [_places(order, size) for order, size in zip(orders, sizes, strict=True)]
        return np.concatenate([a.take(r, axis) for a, r in zip(arrays, rows, strict=True)], axis)
    if arrays[0].dtype.kind not in "iufc":
        return arrays[0]
    mean = sum(
        a.astype(np.float64) * share / total for a, share in zip(arrays, samples, strict=True)
    )
    is_integer = arrays[0].dtype.kind in "iu"
    return np.asarray(np.rint(mean) if is_integer else mean).astype(arrays[0].dtype)


_LAYOUT = "layout.json"
# Kinds of NumPy's types whose bytes are their values; TensorFlow's own (bfloat16) are of kind V.
_RAW_KINDS = "biufcSUV"


def save_results(path: Path, results: Sequence[StepResults]) -> None:
    """Write what steps computed, for each replica.

    Raises:
        TypeError: a value is no array of numbers or short texts.
    """
    with zipfile.ZipFile(path, "w") as archive:

        def put(value: Any) -> list[Any]:
            array = np.asarray(value)
            if array.dtype == object:  # Texts.
                array = array.astype(np.bytes_)
            if array.dtype.kind not in _RAW_KINDS:
                raise TypeError(f"an array of {array.dtype} cannot be kept")
            name = str(len(archive.namelist()))
            archive.writestr(name, array.tobytes())
            is_short = array.dtype.kind in "SU"
            return [name, array.dtype.str if is_short else array.dtype.name, list(array.shape)]

        layout = [
            {
                "outputs": [put(value) for value in each.outputs],
                "before": {name: put(value) for name, value in each.before.items()},
                "state": {name: put(value) for name, value in each.state.items()},
                "given": {
                    name: None
                    if given is None
                    else [[one.update, one.step, put(one.value)] for one in given]
                    for name, given in each.given.items()
                },
            }
            for each in results
        ]
        archive.writestr(_LAYOUT, json.dumps(layout))


def read_results(path: Path) -> list[StepResults]:
    """Return what `save_results` wrote.

    Raises:
        TestbedError: it is no such file.
    """
    try:
        with zipfile.ZipFile(path) as archive:

            def taken(described: list[Any]) -> Any:
                name, kind, shape = described
                array = np.frombuffer(archive.read(name), np.dtype(kind))
                if array.dtype.kind not in _RAW_KINDS or array.size != prod(shape):
                    raise ValueError(f"array {name} is not of {kind} and {shape}")
                return array.reshape(shape)

            return [
                StepResults(
                    outputs=tuple(map(taken, each["outputs"])),
                    before={name: taken(value) for name, value in each["before"].items()},
                    state={name: taken(value) for name, value in each["state"].items()},
                    given={
                        name: None
                        if given is None
                        else tuple(
                            AppliedUpdate(update=update, step=step, value=taken(value))
                            for update, step, value in given
                        )
                        for name, given in each["given"].items()
                    },
                )
                for each in json.loads(archive.read(_LAYOUT))
            ]
    except (OSError, zipfile.BadZipFile, LookupError, TypeError, ValueError, AttributeError) as e:
        raise TestbedError(f"results of steps cannot be read: {e}") from None


# The step itself has run; what goes wrong from there on is what was changed in it, or the memory
# for another one beside it.
_CANNOT_HOLD = (
    ValueError,
    tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnimplementedError,
)


@dataclass(frozen=True, slots=True)
class _Comparable:
    """How the unsplit step is made comparable: a key of a reference."""

    constant_draws: bool = False
    samples: tuple[int, ...] = ()
    shown: tuple[deterministic_graph.Cancelling, ...] = ()
    split_rounding: bool = False


# What a step computes, and what rounding does to it.
_Reference = tuple[StepResults, tuple["Rounding", ...]]


class Verifier:
    """The reference, and what was computed of it so far."""

    def __init__(self, place: Place, bundle: Bundle, device_of: Mapping[str, str]) -> None:
        """Take what makes placed steps, and the reference: a step and where its ops are."""
        self._place, self._bundle, self._device_of = place, bundle, dict(device_of)
        self._references: dict[_Comparable, _Reference] = {}
        self._alone: dict[str, _Reference] = {}
        self._split: Split | None = None

    def begin(self, steps: int) -> None:
        """Compute the reference."""
        self._reference(_Comparable(), steps)

    def verify(
        self,
        program: str,
        bundle: Bundle,
        device_of: Mapping[str, str],
        ready: PlacedStep,
        steps: int,
    ) -> Verification:
        """Compare a candidate that is ``ready`` with the reference, from where it is right."""

        def compared(seed: int | None) -> Verification:
            begun = bundle
            if seed is not None:
                begun = replace(
                    bundle, variables=deterministic_graph.rounded(bundle.variables, seed)
                )
            ours = ready.results(steps, begun.variables)
            return self._from(seed)._begun(program, begun, device_of, ours, steps)

        return from_other_values(compared)

    def _from(self, seed: int | None) -> Verifier:
        """Return one whose reference begins from other values; None for those that there are."""
        if seed is None:
            return self
        begun = replace(
            self._bundle, variables=deterministic_graph.rounded(self._bundle.variables, seed)
        )
        return Verifier(self._place, begun, self._device_of)

    def _begun(
        self,
        program: str,
        bundle: Bundle,
        device_of: Mapping[str, str],
        ours: StepResults,
        steps: int,
    ) -> Verification:
        """Compare what a candidate computes from the values of its bundle."""
        how = _comparable(bundle.split, bundle)
        if how is None:
            return _unverified(bundle, steps)
        self._split = bundle.split
        try:
            return self._verified(program, bundle, device_of, ours, how, steps)
        except _CANNOT_HOLD:
            return _unverified(bundle, steps)

    def _verified(
        self,
        program: str,
        bundle: Bundle,
        device_of: Mapping[str, str],
        ours: StepResults,
        how: _Comparable,
        steps: int,
    ) -> Verification:
        if how.constant_draws or how.samples:
            found = verify(ours, *self._split_alone(program, bundle, steps), steps)
            if found.wrong:
                return replace(found, held_equal=True)
            if how.constant_draws:
                ours = self._held(bundle, device_of, how, steps)
        found = self._compare(ours, how, steps)
        if found.unverified and not found.wrong:
            found = self._with_sums_shown(bundle, device_of, how, found, steps)
        return replace(found, held_equal=how != _Comparable())

    def compare(
        self, ours: Sequence[StepResults], split: Split, steps: int, seed: int | None
    ) -> Verification:
        """Compare what replicas of a mirrored step computed, draws held equal, with the reference.

        They began from values rounded by a seed, None for those that there are. Of several results
        the one that is farthest off counts.
        """
        if seed is not None:
            return self._from(seed).compare(ours, split, steps, None)
        how = _comparable(split, self._bundle)
        if how is None:
            return _unverified(self._bundle, steps)
        self._split = split
        reference, _ = self._reference(how, steps)
        ours = [_as_known(each, reference) for each in _averaged(ours, split.statistics)]
        # A mirrored step that exchanges nothing has failed before.
        found = [self._compare(each, how, steps, is_exchanged=True) for each in ours]
        worst = max(found, key=lambda each: (bool(each.wrong), each.relative_difference))
        unverified = {name: None for each in found for name in each.unverified}
        return replace(worst, unverified=tuple(unverified), held_equal=how != _Comparable())

    def forget(self, program: str) -> None:
        """Forget what a split step computes on one device: it is another one from now on."""
        self._alone.pop(program, None)

    def _compare(
        self, ours: StepResults, how: _Comparable, steps: int, *, is_exchanged: bool = False
    ) -> Verification:
        found = verify(ours, *self._reference(how, steps), steps, is_exchanged=is_exchanged)
        if found.wrong and self._split is not None:
            how = replace(how, split_rounding=True)
            found = verify(ours, *self._reference(how, steps), steps, is_exchanged=is_exchanged)
        return found

    def _with_sums_shown(
        self,
        bundle: Bundle,
        device_of: Mapping[str, str],
        how: _Comparable,
        found: Verification,
        steps: int,
    ) -> Verification:
        """Compare once more where sums do not cancel; return what is left unverified."""
        alone = _made(self._bundle, self._device_of, how)
        cancelling = find_cancelling(self._place, *alone, found.unverified, bundle)
        if not cancelling:
            return found
        how = replace(how, shown=cancelling)
        again = self._compare(self._held(bundle, device_of, how, steps), how, steps)
        if again.wrong:
            return replace(again, wrong=f"{again.wrong} (where its sum does not cancel)")
        left = tuple(name for name in found.unverified if name in again.unverified)
        return replace(found, unverified=left)

    def _held(
        self, bundle: Bundle, device_of: Mapping[str, str], how: _Comparable, steps: int
    ) -> StepResults:
        """Return what a candidate computes, made comparable."""
        step = self._place(*_made(bundle, device_of, how))
        try:
            return step.results(steps)
        finally:
            step.close()

    def _reference(self, how: _Comparable, steps: int) -> _Reference:
        """Return what the reference computes, and what it does where things are rounded."""
        if how not in self._references:
            bundle, device_of = _made(self._bundle, self._device_of, how)
            if how.split_rounding:
                exact, noisy = self._reference(replace(how, split_rounding=False), steps)
                self._references[how] = exact, (*noisy, *self._as_splits_round(exact, how, steps))
            else:
                self._references[how] = self._twice(
                    bundle, device_of, partial(self._run, how, steps)
                )
        return self._references[how]

    def _as_splits_round(
        self, exact: StepResults, how: _Comparable, steps: int
    ) -> tuple[Rounding, ...]:
        bundle, device_of = _made(self._bundle, self._device_of, how)
        values = deterministic_graph.rounded(bundle.variables, deterministic_graph.ROUNDING_SEED)
        reordered = rounding(
            self._once(bundle, device_of, partial(self._reordered, how, steps), values), exact
        )
        bundle, beside = deterministic_graph.with_rounded_lookups(
            bundle, deterministic_graph.ROUNDING_SEED
        )
        device_of |= {new: device_of[old] for new, old in beside.items()}
        looked_up = self._once(bundle, device_of, partial(self._run, how, steps), values)
        return reordered, rounding(looked_up, exact)

    def _run(
        self, how: _Comparable, steps: int, step: PlacedStep, values: Mapping[str, Any] | None
    ) -> StepResults:
        """Return what the reference computes, from other values if there are any."""
        if self._split is not None and how.samples:
            return results_of_shares(step, self._split, how.samples, steps, values)
        return step.results(steps, values)

    def _reordered(
        self, how: _Comparable, steps: int, step: PlacedStep, values: Mapping[str, Any] | None
    ) -> StepResults:
        """Return what the reference computes of samples in another order."""
        assert self._split is not None, "only splits add up in another order"
        samples = how.samples or (sum(self._split.samples),)
        return results_of_shares(
            step, self._split, samples, steps, values, deterministic_graph.ROUNDING_SEED
        )

    def _split_alone(self, program: str, bundle: Bundle, steps: int) -> _Reference:
        """Return what a split step computes on the one device of the reference."""
        if program not in self._alone:
            device = next(iter(self._device_of.values()))
            placed = {node.name: device for node in bundle.graph_def.node}
            placed |= dict.fromkeys(bundle.loops, device)
            self._alone[program] = self._twice(
                bundle, placed, lambda step, values: step.results(steps, values)
            )
        return self._alone[program]

    def _twice(
        self,
        bundle: Bundle,
        device_of: Mapping[str, str],
        run: Callable[[PlacedStep, Mapping[str, Any] | None], StepResults],
    ) -> _Reference:
        """Run a step from its values and from rounded ones."""
        exact, noisy = (
            self._once(bundle, device_of, run, values)
            for values in (
                None,
                deterministic_graph.rounded(bundle.variables, deterministic_graph.ROUNDING_SEED),
            )
        )
        return exact, (rounding(noisy, exact),)

    def _once(
        self,
        bundle: Bundle,
        device_of: Mapping[str, str],
        run: Callable[[PlacedStep, Mapping[str, Any] | None], StepResults],
        values: Mapping[str, Any] | None,
    ) -> StepResults:
        """Run a step in a session of its own, where kernels that draw numbers begin anew."""
        step = self._place(bundle, device_of)
        try:
            return run(step, values)
        finally:
            step.close()


def _comparable(split: Split | None, bundle: Bundle) -> _Comparable | None:
    """Return how a step is made comparable with the unsplit one, None if that is not known."""
    if split is None:
        return _Comparable()
    if split.draws and deterministic_graph.goes_on_drawing(bundle):
        return None
    if not split.takes_statistics:
        return _Comparable(constant_draws=split.draws)
    is_even = len(set(split.samples)) == 1
    return _Comparable(split.draws, split.samples) if is_even and not split.goes_on else None


def _made(
    bundle: Bundle, device_of: Mapping[str, str], how: _Comparable
) -> tuple[Bundle, dict[str, str]]:
    placed = dict(device_of)
    if how.constant_draws:
        bundle = deterministic_graph.with_constant_draws(bundle)
    if how.shown:
        known = {node.name for node in bundle.graph_def.node}
        bundle = deterministic_graph.without_cancelling(bundle, how.shown)
        placed |= {
            deterministic_graph.shown_name(name, each.place): placed[name]
            for each in how.shown
            for name in deterministic_graph.copies(each.op, known)
        }
    return bundle, placed


def _as_known(ours: StepResults, reference: StepResults) -> StepResults:
    """Leave out what updates of other kinds were given, as `tf.distribute` may make them.

    Outputs of replicas are their own.
    """
    given = dict(ours.given)
    for name, theirs in reference.given.items():
        updates_of = [{each.update for each in found or ()} for found in (given.get(name), theirs)]
        if updates_of[0] and updates_of[0] != updates_of[1]:
            given[name] = None
    return replace(ours, outputs=reference.outputs, given=given)


def _averaged(ours: Sequence[StepResults], names: Sequence[str]) -> list[StepResults]:
    """Put the means over replicas in place of what each kept and was given of some variables.

    `tf.distribute` leaves the statistics of batch normalization to each replica, and saves those of
    the first; together they have to be those of the reference.
    """
    given = {}
    for name in names:
        of_replicas = [each.given.get(name) for each in ours]
        if all(of_replicas):
            given[name] = tuple(
                replace(updates[0], value=_mean([update.value for update in updates]))
                for updates in zip(*filter(None, of_replicas), strict=True)
            )
    state = {name: _mean([each.state[name] for each in ours]) for name in names}
    return [
        replace(each, state={**each.state, **state}, given={**each.given, **given}) for each in ours
    ]


def _mean(values: Sequence[Any]) -> Any:
    first = np.asarray(values[0])
    return np.mean([np.asarray(value, np.float64) for value in values], 0).astype(first.dtype)


def _unverified(bundle: Bundle, steps: int) -> Verification:
    return Verification(
        steps=steps, variables=len(bundle.variables), unverified=tuple(bundle.variables)
    )
