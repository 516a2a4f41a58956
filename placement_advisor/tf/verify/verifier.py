"""Verifies candidates: what their steps compute and change, against a reference of the same.

The reference is the first candidate, on one device. Where replicas of a split step compute
something of their own, it is made comparable first:

- ops that draw random numbers draw a constant in both (`held`), and the split step as it is, its
  draws included, is compared with itself on one device;
- where replicas take statistics of their samples, the reference is put together from runs of the
  unsplit step (`share_by_share`).

What a split step then does otherwise may be what only splits round otherwise: the reference is
computed once more with lookups rounded as well, and with samples in another order.
A step that differs all the same begins anew from other values, as does the reference: a mistake is
made from there as well.
What still drowns in rounding since a sum cancels is compared once more in a step in which it
does not (`cancelling`, `held.without_cancelling`).

Left out: statistics where shares differ in size or replicas go on with what was put together, and
draws of integers or by weight: there variables stay unverified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.measurement.verification import (
    StepResults,
    Verification,
    from_other_values,
    rounding,
    verify,
)
from placement_advisor.tf.verify.cancelling import find_cancelling
from placement_advisor.tf.verify.held import (
    Cancelling,
    copies,
    goes_on_drawing,
    shown_name,
    with_constant_draws,
    with_rounded_lookups,
    without_cancelling,
)
from placement_advisor.tf.verify.rounding import ROUNDING_SEED, rounded
from placement_advisor.tf.verify.share_by_share import results_of_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.measurement.verification import Rounding
    from placement_advisor.tf.place.placed_step import PlacedStep
    from placement_advisor.tf.trace.bundle import Bundle, Split
    from placement_advisor.tf.verify.cancelling import Place

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
    shown: tuple[Cancelling, ...] = ()
    split_rounding: bool = False


# What a step computes, and what rounding does to it.
_Reference = tuple["StepResults", tuple["Rounding", ...]]


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
                begun = replace(bundle, variables=rounded(bundle.variables, seed))
            ours = ready.results(steps, begun.variables)
            return self._from(seed)._begun(program, begun, device_of, ours, steps)

        return from_other_values(compared)

    def _from(self, seed: int | None) -> Verifier:
        """Return one whose reference begins from other values; None for those that there are."""
        if seed is None:
            return self
        begun = replace(self._bundle, variables=rounded(self._bundle.variables, seed))
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
        split = bundle.split
        how = _comparable(split)
        if how is None or (how.constant_draws and goes_on_drawing(bundle)):
            return _unverified(bundle, steps)
        self._split = split
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
        return self._from(seed)._compared(ours, split, steps)

    def _compared(self, ours: Sequence[StepResults], split: Split, steps: int) -> Verification:
        how = _comparable(split)
        if how is None or (how.constant_draws and goes_on_drawing(self._bundle)):
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
        values = rounded(bundle.variables, ROUNDING_SEED)
        reordered = rounding(
            self._once(bundle, device_of, partial(self._reordered, how, steps), values), exact
        )
        bundle, beside = with_rounded_lookups(bundle, ROUNDING_SEED)
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
        return results_of_shares(step, self._split, samples, steps, values, ROUNDING_SEED)

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
            for values in (None, rounded(bundle.variables, ROUNDING_SEED))
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


def _comparable(split: Split | None) -> _Comparable | None:
    """Return how a step is made comparable with the unsplit one, None if that is not known."""
    if split is None:
        return _Comparable()
    if not split.takes_statistics:
        return _Comparable(constant_draws=split.draws)
    is_even = len(set(split.samples)) == 1
    return _Comparable(split.draws, split.samples) if is_even and not split.goes_on else None


def _made(
    bundle: Bundle, device_of: Mapping[str, str], how: _Comparable
) -> tuple[Bundle, dict[str, str]]:
    placed = dict(device_of)
    if how.constant_draws:
        bundle = with_constant_draws(bundle)
    if how.shown:
        known = {node.name for node in bundle.graph_def.node}
        bundle = without_cancelling(bundle, how.shown)
        placed |= {
            shown_name(name, each.place): placed[name]
            for each in how.shown
            for name in copies(each.op, known)
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
