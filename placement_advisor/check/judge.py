"""Which differences between a locked step and the step of today fail a check, and what to say.

What became worse beyond its tolerance fails; what became better is told and never fails. A graph
that is the same but for names and order, placed the same, is not compared at all. A placement by
a rule or a search may move layers as it likes: only what that costs counts. Times count where they
were predicted for the same devices by the same versions. Budgets count always.

Left out: differences within the tolerances, which may add up over many changes until the lock file
is written again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.check.difference import Difference, difference
from placement_advisor.check.placements import Freedom
from placement_advisor.check.record import Part, Standing
from placement_advisor.units import NS_PER_US, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from placement_advisor.check.record import Record

# Kernels and buffers of one size come and go as code is written in other words. The edits of
# `tests/check/edits.py` show how much: the 40 harmless ones move the predicted step by 4.0 % at
# most (0.9 % up), a peak by 2.0 % up and by 7.2 % down, and no bytes across; of the harmful ones
# those that make the step slower add 6.2 % and more. So 5 % lies between, with little room: an edit
# that orders a step otherwise may fail by its memory alone. That bytes may grow by 1 % is
# judgement: scalars come and go with what is logged.
BYTES_TOLERANCE = 0.01
MEMORY_TOLERANCE = 0.05
STEP_TOLERANCE = 0.05
# More names than these no reader of a pull request takes in.
MAX_CULPRITS = 5
# What crosses and is less than this does not make a step longer, but for its number. Judgement: it
# only picks which tensors are named.
_LARGE_SHARE = 0.05
_RANKS = (Standing.SINGLE, Standing.CANNOT_TELL, Standing.SPLIT)


class Code(StrEnum):
    """What is wrong; stable names, as other tools know them."""

    DOES_NOT_FIT = "placement-does-not-fit"
    OUT_OF_MEMORY = "out-of-memory"
    OVER_BUDGET = "over-budget"
    MOVED = "layer-moved"
    NO_KERNEL = "no-gpu-kernel"
    COPIES = "more-copies"
    BYTES = "more-bytes-across"
    SLOWER = "slower-step"
    MEMORY = "more-memory"
    STANDING = "verdict-changed"
    NOT_LOCKED = "not-in-lock-file"
    MEASURED_SLOWER = "measured-slower"
    DOES_NOT_RUN = "does-not-run"


# What a new lock file does not make good: the step does not run, or is over budget, all the same.
LASTING = frozenset({Code.DOES_NOT_FIT, Code.OUT_OF_MEMORY, Code.OVER_BUDGET, Code.DOES_NOT_RUN})


class Place(NamedTuple):
    """A line of the user's code; ``file`` is relative to the project."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reason to fail: what happened, what made it happen, what to do, and where in the code."""

    code: Code
    what: str
    culprits: tuple[str, ...] = ()
    action: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a step may cost: budgets in bytes, and by what share its predicted time may grow."""

    max_transfer_bytes: int | None = None
    max_peak_bytes: int | None = None
    max_step_regression: float = STEP_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What fails, what is only told, and what differs, if anything was compared."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    difference: Difference | None


@dataclass(slots=True, kw_only=True)
class _Judge:
    difference: Difference
    limits: Limits
    freedom: Freedom
    place_of: Callable[[str], Place | None]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def before(self) -> Record:
        return self.difference.before

    @property
    def after(self) -> Record:
        return self.difference.after

    @property
    def times_compare(self) -> bool:
        return self.before.versions == self.after.versions

    def fail(self, code: Code, what: str, culprits: Iterable[tuple[str, str]], action: str) -> None:
        """Add a problem; culprits are phrases with the op or layer that has a line."""
        named = list(culprits)
        phrases = [self._with_place(phrase, key) for phrase, key in named[:MAX_CULPRITS]]
        if len(named) > MAX_CULPRITS:
            phrases.append(f"{len(named) - MAX_CULPRITS} more")
        places = (self.place_of(key) for _, key in named)
        self.problems.append(
            Problem(
                code=code,
                what=what,
                culprits=tuple(phrases),
                action=action,
                place=next((place for place in places if place is not None), None),
            )
        )

    def has(self, code: Code) -> bool:
        """Whether there is such a problem."""
        return any(problem.code is code for problem in self.problems)

    def kernels(self) -> None:
        """Ops on a GPU that have no kernel there, and had one."""
        for layer, kind in self.difference.on_host_added:
            self.fail(
                Code.NO_KERNEL,
                f"{kind} in {_called(layer)} is placed on a GPU, which has no kernel for it: it "
                "runs on the host",
                [(f"{kind} in {_called(layer)}", layer)],
                "take it out of the device scope, best into the input pipeline",
            )

    def moves(self) -> None:
        """Layers that run elsewhere, unless by a rule, or for the better."""
        moves = self.difference.moves
        if not moves:
            return
        phrases = [
            (f"{_called(move.layer)}: {_part(move.part)}{_to(move.before)} -> {_to(move.after)}",
             move.layer)
            for move in moves
        ]  # fmt: skip
        if self.freedom is not Freedom.NONE or self._is_better():
            self.notes.append(f"moved: {'; '.join(phrase for phrase, _ in phrases[:MAX_CULPRITS])}")
            return
        count = len({move.layer for move in moves})
        self.fail(
            Code.MOVED,
            f"{count} layer{'s run' if count > 1 else ' runs'} on another device than before",
            phrases,
            "put them back into the scope or placement that they had",
        )

    def copies(self) -> None:
        """Tensors that cross and did not."""
        before, after = self.before, self.after
        added = after.copies - before.copies
        if added > 0:
            self.fail(
                Code.COPIES,
                f"{added:+} copies per step ({before.copies} -> {after.copies})",
                self._crossings(),
                "compute what is read there on that side, or send one tensor for several",
            )
        more = after.bytes_across - before.bytes_across
        if more > BYTES_TOLERANCE * before.bytes_across:
            self.fail(
                Code.BYTES,
                f"{_signed(more)} across devices per step ({format_bytes(before.bytes_across)} -> "
                f"{format_bytes(after.bytes_across)})",
                self._crossings(),
                "cut where less crosses: before a layer that widens, after one that narrows",
            )
        elif more < -BYTES_TOLERANCE * before.bytes_across:
            self.notes.append(f"better: {_signed(more)} across per step")
        if added < 0:
            self.notes.append(f"better: {added:+} copies per step")

    def step(self) -> None:
        """The predicted time of a step, where it can be compared."""
        before, after = self.before, self.after
        # Rounded, for 1050 / 1000 - 1 is more than 0.05.
        growth = round(after.step_us / before.step_us - 1, 9) if before.step_us else 0.0
        if growth > self.limits.max_step_regression:
            slower = [
                (f"{_called(layer.layer)} {_signed_us(layer.after_us - layer.before_us)}",
                 layer.layer)
                for layer in self.difference.growths
                if layer.after_us > layer.before_us
            ]  # fmt: skip
            self.fail(
                Code.SLOWER,
                f"the predicted step takes {growth:.1%} longer ({_us(before.step_us)} -> "
                f"{_us(after.step_us)}, {self.limits.max_step_regression:.0%} are allowed)",
                [*slower[:MAX_CULPRITS], *self._crossings(_LARGE_SHARE)],
                "see whether the layers named need to be that heavy, or split the model anew "
                "with advisor analyze",
            )
        elif growth < -self.limits.max_step_regression:
            self.notes.append(
                f"better: the predicted step takes {-growth:.1%} less ({_us(before.step_us)} -> "
                f"{_us(after.step_us)})"
            )
        if self._fell():
            self.fail(
                Code.STANDING,
                f"the placement was predicted to be {_STANDINGS[before.standing]}, now "
                f"{_STANDINGS[after.standing]}: {_us(after.step_us)} against "
                f"{_us(after.single_step_us)} on one device",
                self._crossings(),
                "ask advisor analyze which placement pays now",
            )
        elif before.standing is not after.standing:
            self.notes.append(
                f"the placement was predicted to be {_STANDINGS[before.standing]}, now "
                f"{_STANDINGS[after.standing]}"
            )

    def memory(self) -> None:
        """The peak of each device."""
        for device in self.after.memory_bytes:
            before, after = self.before.peak_bytes(device), self.after.peak_bytes(device)
            if after > (1 + MEMORY_TOLERANCE) * before:
                self.fail(
                    Code.MEMORY,
                    f"{device}: {_signed(after - before)} of peak memory ({format_bytes(before)} "
                    f"-> {format_bytes(after)})",
                    self._held_more(device),
                    "see what is kept longer or is larger than before; a smaller batch needs less",
                )
            elif after < (1 - MEMORY_TOLERANCE) * before:
                self.notes.append(
                    f"better: {device} has a peak of {format_bytes(after)}, not "
                    f"{format_bytes(before)}"
                )

    def _fell(self) -> bool:
        """Whether the placement stands worse against one device, by more than a hair."""
        before, after = self.before, self.after
        ratio_before = before.step_us / max(1, before.single_step_us)
        ratio_after = after.step_us / max(1, after.single_step_us)
        return (
            _RANKS.index(after.standing) < _RANKS.index(before.standing)
            and ratio_after > (1 + self.limits.max_step_regression) * ratio_before
        )

    def _is_better(self) -> bool:
        """Whether what changed is shown to be for the better, or to cost nothing."""
        before, after = self.before, self.after
        if after.copies > before.copies or after.bytes_across > before.bytes_across:
            return False
        if self.times_compare:
            return after.step_us <= before.step_us
        return (after.copies, after.bytes_across) != (before.copies, before.bytes_across)

    def _crossings(self, least_share: float = 0.0) -> list[tuple[str, str]]:
        """Return the tensors that cross and did not, of some share of all bytes that do."""
        return [
            (f"{cut.tensor} {cut.source} -> {cut.target} {_signed(cut.size_bytes)}", cut.tensor)
            for cut in self.difference.cuts_added
            if (cut.size_bytes or 0) >= least_share * self.after.bytes_across
        ]

    def _held_more(self, device: str) -> list[tuple[str, str]]:
        before = self.before.memory_bytes.get(device, {})
        after = self.after.memory_bytes[device]
        more = {kind: size - before.get(kind, 0) for kind, size in after.items()}
        return [
            (f"{_signed(size)} {kind}", "")
            for kind, size in sorted(more.items(), key=lambda item: (-item[1], item[0]))
            if size > 0
        ]

    def _with_place(self, phrase: str, key: str) -> str:
        place = self.place_of(key)
        return phrase if place is None else f"{phrase} ({place})"


def judge(
    before: Record | None,
    after: Record,
    limits: Limits,
    *,
    alike: Sequence[Sequence[str]],
    freedom: Freedom,
    shortages: Iterable[str],
    place_of: Callable[[str], Place | None],
) -> Judgement:
    """Judge the step of today (``after``) by the locked one, if there is one.

    ``alike`` are groups of devices that may trade places; ``freedom`` is that of what laid the
    placement out. ``shortages`` say where memory does not suffice. ``place_of`` gives the line of
    the user's code for a tensor or a layer.
    """
    problems = [
        Problem(
            code=Code.OUT_OF_MEMORY,
            what=shortage,
            action="make the batch smaller, or move layers to where memory is left",
        )
        for shortage in shortages
    ]
    problems += _over_budget(after, limits, place_of)
    if before is None:
        problems.append(
            Problem(
                code=Code.NOT_LOCKED,
                what="the lock file does not have this model",
                action="advisor check --update, and commit what it writes",
            )
        )
        return Judgement(problems=tuple(problems), notes=(), difference=None)
    same_versions = before.versions == after.versions
    notes = [] if same_versions else [_not_comparable(before, after)]
    is_same = before.placed == after.placed or (
        freedom is not Freedom.NONE and same_versions and before.graph == after.graph
    )
    if is_same and before.placement == after.placement:
        return Judgement(problems=tuple(problems), notes=tuple(notes), difference=None)
    found = difference(before, after, alike)
    judged = _Judge(difference=found, limits=limits, freedom=freedom, place_of=place_of)
    if found.renamed:
        few = [f"{old} is {new} now" for old, new in list(found.renamed.items())[:MAX_CULPRITS]]
        judged.notes.append(f"renamed, which is no change: {', '.join(few)}")
    judged.kernels()
    judged.moves()
    if same_versions:
        judged.step()
    # A search weighs copies and memory against time: without a longer step they are its choice.
    if not (freedom is Freedom.SEARCH and same_versions) or judged.has(Code.SLOWER):
        judged.copies()
        judged.memory()
    return Judgement(
        problems=(*problems, *judged.problems),
        notes=(*notes, *judged.notes),
        difference=found,
    )


_STANDINGS = {
    Standing.SPLIT: "faster than one device",
    Standing.SINGLE: "no faster than one device",
    Standing.CANNOT_TELL: "within doubt of one device",
}


def _over_budget(
    after: Record, limits: Limits, place_of: Callable[[str], Place | None]
) -> list[Problem]:
    found = []
    budget = limits.max_transfer_bytes
    if budget is not None and after.bytes_across > budget:
        largest = after.cuts[:MAX_CULPRITS]
        places = (place_of(cut.tensor) for cut in largest)
        found.append(
            Problem(
                code=Code.OVER_BUDGET,
                what=f"{format_bytes(after.bytes_across)} cross per step, max_transfer_bytes is "
                f"{format_bytes(budget)}",
                culprits=tuple(
                    f"{cut.tensor} {cut.source} -> {cut.target} {format_bytes(cut.size_bytes)}"
                    for cut in largest
                ),
                action="cut where less crosses, or raise the budget in pyproject.toml",
                place=next((place for place in places if place is not None), None),
            )
        )
    memory = limits.max_peak_bytes
    for device in after.memory_bytes if memory is not None else ():
        held = after.memory_bytes[device]
        if after.peak_bytes(device) > (memory or 0):
            most = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:MAX_CULPRITS]
            found.append(
                Problem(
                    code=Code.OVER_BUDGET,
                    what=f"{device} needs {format_bytes(after.peak_bytes(device))} of memory, "
                    f"max_peak_memory is {format_bytes(memory)}",
                    culprits=tuple(f"{format_bytes(size)} {kind}" for kind, size in most),
                    action="make the batch smaller, move layers, or raise the budget in "
                    "pyproject.toml",
                )
            )
    return found


def _not_comparable(before: Record, after: Record) -> str:
    ours, theirs = before.versions, after.versions
    pairs = [
        ("hardware", ours.hardware, theirs.hardware),
        ("TensorFlow", ours.tensorflow, theirs.tensorflow),
        ("advisor", ours.advisor, theirs.advisor),
    ]
    changed = [f"{what} {old}, now {new}" for what, old, new in pairs if old != new]
    if not changed:
        changed = ["other figures of the hardware"]
    return (
        f"predicted times are not comparable: locked with {'; '.join(changed)}. All else is "
        "enforced; `advisor check --update` locks times anew"
    )


def _called(layer: str) -> str:
    return layer or "ops of no layer"


def _part(part: Part) -> str:
    return {Part.FORWARD: "", Part.BACKWARD: "backward pass ", Part.VARIABLES: "variables "}[part]


def _to(devices: Sequence[str]) -> str:
    return " and ".join(devices)


def _signed(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "of unknown size"
    return f"{'-' if size_bytes < 0 else '+'}{format_bytes(abs(size_bytes))}"


def _us(time_us: int) -> str:
    return format_ns(time_us * NS_PER_US)


def _signed_us(time_us: int) -> str:
    return f"{'-' if time_us < 0 else '+'}{_us(abs(time_us))}"
