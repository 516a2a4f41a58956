"""Verifies a candidate: compares what its step computes and changes with a reference.

It finds sums that cancel, in which rounding would look like a mistake, and compares split
steps with runs of the unsplit step. Results on disk are plain numbers, since another host may
have written them.
"""

from __future__ import annotations

import json
import zipfile
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from placement_advisor.errors import TestbedError
from placement_advisor.graph.digraph import reached
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
from placement_advisor.tf.trace.roles import Update, op_of, tensor_name, updates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.measurement.verification import Rounding
    from placement_advisor.tf.placed_step import PlacedStep
    from placement_advisor.tf.trace.bundle import Bundle, Split

    Place = Callable[[Bundle, Mapping[str, str]], PlacedStep]
    # A step, and values in place of its initial state.
    Run = Callable[[PlacedStep, Mapping[str, Any] | None], StepResults]


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
    found: dict[str, bool] = {}
    # Of a large model it takes seconds to put the state back, and there are many turns.
    is_initial = False
    with ExitStack() as opened:
        running = [opened.enter_context(closing(place(bundle, device_of))) for _ in states]
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
    return found


def _only_reads(
    nodes: Mapping[str, Any], tensors: Sequence[str], variables: Mapping[str, Any]
) -> bool:
    """Say whether all that tensors are computed from does no more than read variables."""
    before = {
        name: {op_of(reference) for reference in nodes[name].input}
        for name in reached(map(op_of, tensors), lambda name: map(op_of, nodes[name].input))
    }
    return all(
        nodes[name].op in _READS or read.isdisjoint(variables) for name, read in before.items()
    )


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

        layout = [asdict(_with_arrays(each, put)) for each in results]
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

            results = []
            for each in json.loads(archive.read(_LAYOUT)):
                for name, found in each["given"].items():
                    each["given"][name] = found and [AppliedUpdate(**one) for one in found]
                results.append(_with_arrays(StepResults(**each), taken))
            return results
    except (OSError, zipfile.BadZipFile, LookupError, TypeError, ValueError, AttributeError) as e:
        raise TestbedError(f"results of steps cannot be read: {e}") from None


def _with_arrays(results: StepResults, change: Callable[[Any], Any]) -> StepResults:
    """Return results with something in place of each array."""
    return StepResults(
        outputs=tuple(map(change, results.outputs)),
        before={name: change(value) for name, value in results.before.items()},
        state={name: change(value) for name, value in results.state.items()},
        given={
            name: None
            if given is None
            else tuple(replace(one, value=change(one.value)) for one in given)
            for name, given in results.given.items()
        },
    )


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


class _Step(NamedTuple):
    """A step, and where its ops are."""

    bundle: Bundle
    device_of: Mapping[str, str]


# What a step computes, and what rounding does to it.
_Reference = tuple[StepResults, tuple["Rounding", ...]]


class Verifier:
    """The reference, and what was computed of it so far."""

    def __init__(
        self, place: Place, bundle: Bundle, device_of: Mapping[str, str], steps: int
    ) -> None:
        """Take what makes placed steps, and the reference: a step, where its ops are, how many."""
        self._place, self._steps = place, steps
        self._step = _Step(bundle, device_of)
        self._references: dict[_Comparable, _Reference] = {}
        self._alone: dict[str, _Reference] = {}
        self._split: Split | None = None

    def begin(self) -> None:
        """Compute the reference."""
        self._reference(_Comparable())

    def verify(
        self, program: str, bundle: Bundle, device_of: Mapping[str, str], ready: PlacedStep
    ) -> Verification:
        """Compare a candidate that is ``ready`` with the reference, from where it is right."""

        def compared(seed: int | None) -> Verification:
            begun = _begun(bundle, seed)
            ours = ready.results(self._steps, begun.variables)
            return self._from(seed)._verified(program, _Step(begun, device_of), ours)

        return from_other_values(compared)

    def _from(self, seed: int | None) -> Verifier:
        """Return one whose reference begins from other values; None for those that there are."""
        if seed is None:
            return self
        bundle, device_of = self._step
        return Verifier(self._place, _begun(bundle, seed), device_of, self._steps)

    def _verified(self, program: str, step: _Step, ours: StepResults) -> Verification:
        """Compare what a candidate computes from the values of its bundle."""
        how = _comparable(step.bundle.split, step.bundle)
        if how is None:
            return self._unverified(step.bundle)
        self._split = step.bundle.split
        try:
            if how.constant_draws or how.samples:
                found = verify(ours, *self._split_alone(program, step.bundle), self._steps)
                if found.wrong:
                    return replace(found, held_equal=True)
                if how.constant_draws:
                    ours = self._held(step, how)
            found = self._compare(ours, how)
            if found.unverified and not found.wrong:
                found = self._with_sums_shown(step, how, found)
        except _CANNOT_HOLD:
            return self._unverified(step.bundle)
        return replace(found, held_equal=how != _Comparable())

    def compare(self, ours: Sequence[StepResults], split: Split, seed: int | None) -> Verification:
        """Compare what replicas of a mirrored step computed, draws held equal, with the reference.

        They began from values rounded by a seed, None for those that there are. Of several results
        the one that is farthest off counts.
        """
        if seed is not None:
            return self._from(seed).compare(ours, split, None)
        how = _comparable(split, self._step.bundle)
        if how is None:
            return self._unverified(self._step.bundle)
        self._split = split
        reference, _ = self._reference(how)
        ours = [_as_known(each, reference) for each in _averaged(ours, split.statistics)]
        # A mirrored step that exchanges nothing has failed before.
        found = [self._compare(each, how, is_exchanged=True) for each in ours]
        worst = max(found, key=lambda each: (bool(each.wrong), each.relative_difference))
        unverified = {name: None for each in found for name in each.unverified}
        return replace(worst, unverified=tuple(unverified), held_equal=how != _Comparable())

    def forget(self, program: str) -> None:
        """Forget what a split step computes on one device: it is another one from now on."""
        self._alone.pop(program, None)

    def _compare(
        self, ours: StepResults, how: _Comparable, *, is_exchanged: bool = False
    ) -> Verification:
        found = verify(ours, *self._reference(how), self._steps, is_exchanged=is_exchanged)
        if found.wrong and self._split is not None:
            how = replace(how, split_rounding=True)
            found = verify(ours, *self._reference(how), self._steps, is_exchanged=is_exchanged)
        return found

    def _with_sums_shown(self, step: _Step, how: _Comparable, found: Verification) -> Verification:
        """Compare once more where sums do not cancel; return what is left unverified."""
        alone = _made(self._step, how)
        cancelling = find_cancelling(self._place, *alone, found.unverified, step.bundle)
        if not cancelling:
            return found
        how = replace(how, shown=cancelling)
        again = self._compare(self._held(step, how), how)
        if again.wrong:
            return replace(again, wrong=f"{again.wrong} (where its sum does not cancel)")
        left = tuple(name for name in found.unverified if name in again.unverified)
        return replace(found, unverified=left)

    def _held(self, step: _Step, how: _Comparable) -> StepResults:
        """Return what a candidate computes, made comparable."""
        return self._once(_made(step, how), self._plain, None)

    def _reference(self, how: _Comparable) -> _Reference:
        """Return what the reference computes, and what it does where things are rounded."""
        if how not in self._references:
            if how.split_rounding:
                exact, noisy = self._reference(replace(how, split_rounding=False))
                self._references[how] = exact, (*noisy, *self._as_splits_round(exact, how))
            else:
                self._references[how] = self._twice(_made(self._step, how), self._run(how))
        return self._references[how]

    def _as_splits_round(self, exact: StepResults, how: _Comparable) -> tuple[Rounding, ...]:
        seed = deterministic_graph.ROUNDING_SEED
        made = _made(self._step, how)
        values = deterministic_graph.rounded(made.bundle.variables, seed)
        reordered = rounding(self._once(made, self._run(how, seed), values), exact)
        bundle, beside = deterministic_graph.with_rounded_lookups(made.bundle, seed)
        added = {new: made.device_of[old] for new, old in beside.items()}
        looking_up = _Step(bundle, {**made.device_of, **added})
        return reordered, rounding(self._once(looking_up, self._run(how), values), exact)

    def _run(self, how: _Comparable, order_seed: int | None = None) -> Run:
        """Return what runs the reference, with a seed on samples in another order."""
        split = self._split
        if split is None or not (how.samples or order_seed):
            return self._plain
        samples = how.samples or (sum(split.samples),)
        return lambda step, values: results_of_shares(
            step, split, samples, self._steps, values, order_seed
        )

    def _plain(self, step: PlacedStep, values: Mapping[str, Any] | None) -> StepResults:
        return step.results(self._steps, values)

    def _split_alone(self, program: str, bundle: Bundle) -> _Reference:
        """Return what a split step computes on the one device of the reference."""
        if program not in self._alone:
            device = next(iter(self._step.device_of.values()))
            names = (*(node.name for node in bundle.graph_def.node), *bundle.loops)
            step = _Step(bundle, dict.fromkeys(names, device))
            self._alone[program] = self._twice(step, self._plain)
        return self._alone[program]

    def _twice(self, step: _Step, run: Run) -> _Reference:
        """Run a step from its values and from rounded ones."""
        exact = self._once(step, run, None)
        values = deterministic_graph.rounded(
            step.bundle.variables, deterministic_graph.ROUNDING_SEED
        )
        return exact, (rounding(self._once(step, run, values), exact),)

    def _once(self, step: _Step, run: Run, values: Mapping[str, Any] | None) -> StepResults:
        """Run a step in a session of its own, where kernels that draw numbers begin anew."""
        with closing(self._place(*step)) as placed:
            return run(placed, values)

    def _unverified(self, bundle: Bundle) -> Verification:
        names = tuple(bundle.variables)
        return Verification(steps=self._steps, variables=len(names), unverified=names)


def _begun(bundle: Bundle, seed: int | None) -> Bundle:
    """Return a step that begins from values rounded by a seed, None for those that there are."""
    if seed is None:
        return bundle
    return replace(bundle, variables=deterministic_graph.rounded(bundle.variables, seed))


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


def _made(step: _Step, how: _Comparable) -> _Step:
    bundle, placed = step.bundle, dict(step.device_of)
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
    return _Step(bundle, placed)


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
