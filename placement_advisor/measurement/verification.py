"""Compares what two runs of the same steps changed, and says whether a mistake would have shown.

The comparison is of *changes*: what steps added to each variable. A small change drowns in the
rounding of the variable that it is added to, so the inputs of each op that updates a variable are
compared as well. A third run starts from values that differ in the last digit. It shows how far
rounding alone moves each number.

- A number is *wrong* if it is farther off than rounding explains. Optimizers keep squares of
  gradients that may be rounding alone; these may be off by the square of it.
- A number *shows* mistakes if rounding moves it so little that a mistake of 2 % would be seen.
- Inputs of updates *agree* if they differ by less than a ten-thousandth. The hundredth of their
  elements that rounding moves most is set aside: ties, as of padded words, decide which rows of a
  table are updated, and say nothing of the others.

A variable is verified if its change shows, or if all inputs of its updates show or agree.

Rounding can turn a ReLU over for one sample, which only one row of a table hears of. That is no
mistake, and it goes away from other initial values; a mistake does not. So what is wrong twice from
the same values is compared again from others (`from_other_values`).

Left out: mistakes in a few elements that are small against the largest of their tensor, or that
rounding moves most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Found = TypeVar("Found")

# A step on each of the example batches, which the loader takes four of.
VERIFIED_STEPS = 4
# Adam divides by gradients' own size, so rounding in a tiny gradient becomes a visible step; a
# twentieth of the least mistake that has to be found (tests/campaigns/broken_runs.py: 1.02).
TOLERANCE = 1e-3
# One run with rounded values shows the size of what rounding does, not its largest value.
NOISE_MARGIN = 10
# Half of that least mistake: what rounding could explain, margin and all, is less.
SHOWS = 1e-2
# A two-hundredth of that least mistake, and hundreds of times the last digit of a float: two runs
# of the same step agree in it where neither happens to turn a choice over.
_AGREES = 1e-4
# Of the elements that change, those that may be up to rounding.
_SET_ASIDE = 1e-2
# The difference of two roundings of zero is no smaller than a fourth of either, but by chance.
_OF_ZERO = 4
# A mistake that is a step late shows from the second step on.
_STEPS_THAT_SHOW = 2
# By these seeds values are rounded from which what was wrong begins again.
SEEDS = (31_303, 41_414)
# Kinds of NumPy's types that are equal or not; all others (also bfloat16) can be nearly equal.
EXACT_KINDS = "biuOSU"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedUpdate:
    """What an op that updates a variable was given in one step: what it adds, mostly.

    ``update`` tells the updates of a variable apart.
    """

    update: str
    step: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResults:
    """What steps computed: the outputs of each, in order, and all variables before and after.

    ``given`` has what the updates of each variable were given, None where that is not known.
    """

    outputs: tuple[Any, ...]
    before: Mapping[str, Any]
    state: Mapping[str, Any]
    given: Mapping[str, tuple[AppliedUpdate, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """What a run of the reference that is rounded otherwise shows of rounding.

    ``moved`` is how far what was added to each variable is from the reference: one number, where
    the variables themselves would take the memory of a model for each such run.
    """

    outputs: tuple[Any, ...]
    moved: Mapping[str, float]
    given: Mapping[str, tuple[AppliedUpdate, ...] | None]


def rounding(run: StepResults, reference: StepResults) -> Rounding:
    """Return what a run shows of rounding."""
    return Rounding(
        outputs=run.outputs,
        moved={name: _moved(name, run, reference) for name in reference.state},
        given=run.given,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of comparing a candidate with the reference.

    ``wrong`` is what differs by more than rounding explains, empty if nothing does, and
    ``relative_difference`` how far it is off, in proportion to the change; without anything wrong,
    the farthest that verified changes are apart. ``variables`` counts those compared,
    ``unverified`` are those in which a mistake would not have shown. ``held_equal`` says that
    random numbers, or statistics of the batch, were made the same for both.
    """

    steps: int
    variables: int
    unverified: tuple[str, ...] = ()
    wrong: str = ""
    wrong_variable: str = ""
    relative_difference: float = 0.0
    held_equal: bool = False


@dataclass(frozen=True, slots=True)
class _Apart:
    """How far a number is from the reference, absolutely; beside it how large that is."""

    difference: float
    noise: float
    size: float
    is_exact: bool

    @property
    def is_wrong(self) -> bool:
        return not self.difference <= max(TOLERANCE * self.size, NOISE_MARGIN * self.noise)

    @property
    def is_noise(self) -> bool:
        """Whether rounding explains all of the number."""
        return 0 < self.size <= NOISE_MARGIN * self.noise

    @property
    def is_noise_squared(self) -> bool:
        """Whether rounding explains all of the number, and its square how far off that is."""
        return self.is_noise and self.difference <= NOISE_MARGIN**2 * self.noise

    @property
    def is_zero_rounded(self) -> bool:
        """Whether both numbers are zero but for rounding."""
        bound = NOISE_MARGIN * self.noise
        return self.size <= _OF_ZERO * self.noise and self.difference <= bound

    @property
    def agrees(self) -> bool:
        return self.difference <= _AGREES * self.size

    @property
    def shows(self) -> bool:
        if self.is_exact:
            return True
        return NOISE_MARGIN * self.noise <= SHOWS * self.size

    @property
    def is_seen(self) -> bool:
        """Whether a mistake would have been seen, and none is."""
        return not self.is_wrong and (self.shows or self.agrees)

    @property
    def relative(self) -> float:
        if not self.difference:
            return 0.0
        return self.difference / self.size if self.size else float("inf")


@dataclass(slots=True)
class _Findings:
    worst: float = 0.0
    wrong: tuple[str, str, float] | None = None
    unverified: list[str] = field(default_factory=list)

    def add(self, found: _Apart, what: str, variable: str = "") -> None:
        if found.is_wrong:
            if self.wrong is None or found.relative > self.wrong[2]:
                self.wrong = what, variable, found.relative
        elif found.shows:
            self.worst = max(self.worst, found.relative)


def verify(
    ours: StepResults,
    reference: StepResults,
    rounded: Sequence[Rounding],
    steps: int,
    *,
    is_exchanged: bool = False,
) -> Verification:
    """Compare what steps computed with the reference.

    ``rounded`` are runs of the reference from values that differ in the last digit, and in other
    ways that only rounding tells apart; what any of them shows is what rounding does.
    ``is_exchanged`` says that updates are known to take what all replicas computed: where that is
    zero but for rounding, as the gradient of a bias that a softmax takes away again, there is
    nothing else to verify.
    """
    found = _Findings()
    for number, values in enumerate(
        zip(ours.outputs, reference.outputs, *(run.outputs for run in rounded), strict=True)
    ):
        found.add(_apart(*values), f"output {number}")
    for name in reference.state:
        shows = _compare_variable(name, ours, reference, rounded, found, is_exchanged=is_exchanged)
        if not shows:
            found.unverified.append(name)
    what, variable, relative = found.wrong or ("", "", found.worst)
    return Verification(
        steps=steps,
        variables=len(reference.state),
        unverified=tuple(found.unverified),
        wrong=what,
        wrong_variable=variable,
        relative_difference=relative,
    )


def _compare_variable(
    name: str,
    ours: StepResults,
    reference: StepResults,
    rounded: Sequence[Rounding],
    found: _Findings,
    *,
    is_exchanged: bool,
) -> bool:
    """Compare a variable's change and what its updates were given; say whether either shows."""
    if name not in ours.state:
        found.add(_infinitely_far(), f"variable {name!r}, which is not there", name)
        return False
    change = _change(
        (ours.before[name], ours.state[name]),
        (reference.before[name], reference.state[name]),
        noise=max(run.moved[name] for run in rounded),
    )
    if not change.is_noise_squared:
        found.add(change, f"what was added to variable {name!r}", name)
    if not reference.given.get(name):  # No op that is known to update it: a constant.
        return change.shows if change.size else not change.difference
    is_shown = change.size > 0 and change.shows
    if ours.given.get(name, ()) is None:
        return is_shown
    runs: tuple[StepResults | Rounding, ...] = (ours, reference, *rounded)
    given = [_by_step(run, name) for run in runs]
    if given[0].keys() != given[1].keys():
        found.add(_infinitely_far(), f"variable {name!r}, which other ops update,", name)
        return False
    steps: dict[str, int] = {}
    for (update, step), value in given[0].items():
        values = value, *(run[update, step] for run in given[1:])
        apart = _apart(*values)
        # How large noise is says nothing: Adam squares it.
        if not apart.is_noise:
            found.add(apart, f"what step {step} adds to variable {name!r} ({update})", name)
        is_seen = (
            apart.is_seen
            or (is_exchanged and apart.is_zero_rounded)
            or _but_for_few(*values).is_seen
        )
        steps[update] = steps.get(update, 0) + is_seen
    asked = min(_STEPS_THAT_SHOW, 1 + max(step for _, step in given[0]))
    return is_shown or all(count >= asked for count in steps.values())


def from_other_values(compared: Callable[[int | None], Found]) -> Found:
    """Return a comparison that is wrong only if it is wrong from all initial values.

    ``compared`` takes a seed that rounds the initial values of both sides, or None for the values
    as they are. A result that differs from run to run on the same values is wrong.
    """
    found = compared(None)
    if not _is_wrong(found) or not _is_wrong(compared(None)):
        return found
    for seed in SEEDS:
        found = compared(seed)
        if not _is_wrong(found):
            break
    return found


def _is_wrong(found: object) -> bool:
    return isinstance(found, Verification) and bool(found.wrong)


def shows(reference: Any, rounded: Any) -> bool:
    """Say whether a mistake in a tensor would show."""
    return _apart(reference, reference, rounded).shows


def _by_step(run: StepResults | Rounding, name: str) -> dict[tuple[str, int], Any]:
    return {(given.update, given.step): given.value for given in run.given.get(name) or ()}


def _change(ours: tuple[Any, Any], theirs: tuple[Any, Any], noise: float) -> _Apart:
    """Return how far changes are apart; each is given as the values before and after.

    ``noise`` is how far rounding moves the second one.
    """
    befores, afters = zip(*(map(np.asarray, run) for run in (ours, theirs)), strict=True)
    if any(array.shape != afters[1].shape for array in (*befores, *afters)):
        return _infinitely_far()
    if afters[1].dtype.kind in EXACT_KINDS:
        return _equal(*afters, is_free=noise > 0)
    added = [_added(*run) for run in zip(befores, afters, strict=True)]
    # A sum is rounded to the last digit of what is added to, where changes may be far smaller.
    digit = float(_epsilon(afters[1].dtype)) * largest(befores[1])
    return _Apart(farthest(*added), max(noise, digit), largest(added[1]), False)


def _moved(name: str, run: StepResults, reference: StepResults) -> float:
    """Return how far a run's change of a variable is from the reference's."""
    ours, theirs = (np.asarray(each.state[name]) for each in (run, reference))
    if theirs.dtype.kind in EXACT_KINDS:
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    if ours.shape != theirs.shape:
        return np.inf
    return farthest(*(_added(each.before[name], each.state[name]) for each in (run, reference)))


def _added(before: Any, after: Any) -> Any:
    return np.subtract(after, before, dtype=_wide(np.asarray(after).dtype))


def _apart(ours: Any, theirs: Any, *noisy: Any) -> _Apart:
    ours, theirs, *noisy = map(np.asarray, (ours, theirs, *noisy))  # type: ignore[assignment]
    if ours.shape != theirs.shape:
        return _infinitely_far()
    if theirs.dtype.kind in EXACT_KINDS:
        is_free = not all(np.array_equal(each, theirs) for each in noisy)
        return _equal(ours, theirs, is_free=is_free)
    size = largest(theirs)
    noise = max(farthest(each, theirs) if each.shape == theirs.shape else np.inf for each in noisy)
    return _Apart(farthest(ours, theirs), noise, size, False)


def _equal(ours: Any, theirs: Any, *, is_free: bool) -> _Apart:
    """Compare numbers that are equal or not.

    What rounding alone turns, as a choice of the larger of two, is no mistake if it turns.
    """
    is_equal = np.array_equal(ours, theirs)
    if is_free:
        return _Apart(float(not is_equal), 1.0, 1.0, False)
    return _Apart(0.0 if is_equal else np.inf, 0.0, 1.0, True)


def _but_for_few(ours: Any, theirs: Any, *noisy: Any) -> _Apart:
    """Compare all but the elements that rounding moves most, of those that change a hundredth."""
    runs = [np.asarray(each) for each in (ours, theirs, *noisy)]
    reference = runs[1]
    few = int(_SET_ASIDE * np.count_nonzero(reference))
    if not few or reference.dtype.kind in EXACT_KINDS or len({run.shape for run in runs}) > 1:
        return _infinitely_far()
    wide = _wide(reference.dtype)
    with np.errstate(invalid="ignore"):  # An infinite value less itself.
        noise = [np.abs(run.astype(wide) - reference.astype(wide)) for run in runs[2:]]
    kept = np.argsort(np.max(noise, 0), axis=None)[:-few]
    return _apart(*(run.reshape(-1)[kept] for run in runs))


def farthest(ours: Any, theirs: Any) -> float:
    """Return the largest difference; NaN equals NaN, and an infinite value itself."""
    wide = _wide(theirs.dtype)
    with np.errstate(invalid="ignore"):  # An infinite value less itself.
        most = _most(np.subtract(ours, theirs, dtype=wide))
    if np.isfinite(most):
        return most
    ours, theirs = ours.astype(wide, copy=False), theirs.astype(wide, copy=False)
    differ = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
    if not differ.any():
        return 0.0
    if not np.isfinite([ours[differ], theirs[differ]]).all():
        return float("inf")
    return float(np.max(np.abs(ours[differ] - theirs[differ])))


def largest(array: Any) -> float:
    """Return the largest of the finite numbers, 0 without any."""
    wide = array.dtype if array.dtype in (np.float32, np.float64) else _wide(array.dtype)
    values = array.astype(wide, copy=False)
    most = _most(values)
    return most if np.isfinite(most) else _most(values[np.isfinite(values)])


def _most(values: Any) -> float:
    """Return the largest of floats by size; two passes that make no array take the least time."""
    if values.dtype.kind == "c":
        return float(np.abs(values).max(initial=0.0))
    return abs(float(np.maximum(values.max(initial=0.0), -values.min(initial=0.0))))


def _wide(dtype: Any) -> Any:
    return np.complex128 if dtype.kind == "c" else np.float64


def _epsilon(dtype: Any) -> float:
    try:
        return float(np.finfo(dtype).eps)
    except ValueError:  # A type of TensorFlow's, as bfloat16 with its eight digits.
        return 2.0**-7


def _infinitely_far() -> _Apart:
    return _Apart(float("inf"), 0.0, 0.0, True)
