"""Counts the steps of a training that runs with a split plan, and what the split has brought.

It is free of TensorFlow.
"""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter

from placement_advisor.measurement import measurement as measurements
from placement_advisor.units import NS_PER_S, format_duration, format_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """A candidate of an analysis.

    ``placement`` says where each op goes; of a split of the batch ``samples`` say how many of them
    each group of devices takes, and ``placement`` how a group shares its part, if it has several.
    ``devices`` are those of the analysis; ``on_stand_ins``: CPUs have stood in for them. ``single``
    is a placement of the graph that was analysed, which the training's has to be; None if the plan
    is a placement file alone. ``step`` is what ``--step`` calls the step of the script; None takes
    the dearest.
    """

    label: str
    family: str
    devices: tuple[str, ...]
    placement: Path | None
    samples: tuple[int, ...] | None = None
    single: Path | None = None
    step: str | None = None
    on_stand_ins: bool = False

    def groups(self) -> list[list[str]]:
        """Return the devices that take a share of the batch each, one or several together."""
        assert self.samples is not None, "no split of the batch"
        each = 1 if self.placement is None else len(self.devices) // len(self.samples)
        return [list(self.devices[each * i : each * (i + 1)]) for i in range(len(self.samples))]


# A plan as JSON, for the process of the script.
SPLIT_PLAN = TypeAdapter(SplitPlan)

# In so many turns each: as few as have an interval, and two more.
_TURNS = 10
# Less is said with three digits.
_EXACT_S = 10
# Which turns are the placed step's: whatever slows a machine for a while slows both.
_ORDER = (False, True, True, False)


class TrainingTrial:
    """The script's own step and the placed one by turns, on the batches that the script trains on.

    A turn begins with a step that is not counted.
    """

    def __init__(self, steps: int) -> None:
        """Have so many steps counted each way: in `_TURNS` turns, or in turns of one."""
        self._turns = min(steps, _TURNS)
        self._steps = round(steps / self._turns)
        self._own: list[list[int]] = []
        self._placed: list[list[int]] = []
        self._turn: list[int] | None = None

    @property
    def is_placed(self) -> bool:
        """Whether the next step is the placed one."""
        return _ORDER[len(self._own + self._placed) % len(_ORDER)]

    @property
    def is_over(self) -> bool:
        """Whether all turns are done."""
        return min(len(self._own), len(self._placed)) >= self._turns

    def took(self, seconds: float) -> None:
        """Note how long the step took that `is_placed` told of."""
        if self._turn is None:
            self._turn = []
            return
        self._turn.append(round(seconds * NS_PER_S))
        if len(self._turn) == self._steps:
            (self._placed if self.is_placed else self._own).append(self._turn)
            self._turn = None

    @property
    def own_ns(self) -> float:
        """The median step of the script's own."""
        return median(chain.from_iterable(self._own))

    @property
    def placed_ns(self) -> float:
        """The median placed step."""
        return median(chain.from_iterable(self._placed))

    @property
    def speedup(self) -> float:
        """The script's own step over the placed one: the median of turns that follow each other."""
        return 1 / median(self._ratios())

    @property
    def interval(self) -> measurements.Interval | None:
        """The speed-up with its interval; None after a few turns."""
        found = measurements.median_interval(self._ratios())
        return None if found is None else found.inverted

    @property
    def counted(self) -> int:
        """How many steps were counted each way."""
        return self._turns * self._steps

    def _ratios(self) -> list[float]:
        return measurements.paired_ratios(self._own, self._placed)


@dataclass(slots=True, kw_only=True)
class Bill:
    """What a training was run with, so far.

    ``label`` is the split's. ``is_tried``: a trial was asked for, which ``trial`` is once it is
    over. ``why_not`` says why the script trains as it is, None if it does not, or not yet. Making
    the split ready took ``ready_s``, moves of variables after the trial ``moving_s``. ``own_steps``
    are the script's own in the trial, and ``other_steps`` those of batches or fetches that the
    split is not for. ``in_place_of`` is the strategy of the script of which one replica trained.
    """

    label: str
    is_tried: bool
    why_not: str | None = None
    trial: TrainingTrial | None = None
    ready_s: float = 0.0
    placed_steps: int = 0
    own_steps: int = 0
    other_steps: int = 0
    moving_s: float = 0.0
    in_place_of: str | None = None

    @property
    def is_own_kept(self) -> bool:
        """Whether the script's own step was no slower in a trial."""
        return self.trial is not None and self.trial.speedup <= 1

    @property
    def _as_it_is(self) -> str:
        if self.in_place_of is None:
            return "trained as it is"
        return f"trained with one replica of your {self.in_place_of}"

    def decision(self) -> str:
        """Say which step goes on after a trial, and why."""
        trial = self.trial
        assert trial is not None, "a trial is over"
        chosen = self.label if trial.speedup > 1 else "your own step"
        return f"trains with {chosen} from here on: {_compared(self.label, trial)}"

    def told(self, *, so_far: bool = False) -> str:
        """Say in a line what was run, and what it has saved; in short while it goes on."""
        if self.why_not is not None:
            return f"{self._as_it_is}: {self.why_not}"
        if not self.placed_steps:
            why = f"no step that {self.label} is for was seen"
            if self.ready_s:
                why = f"it ended before its first step with {self.label}"
            return f"{self._as_it_is}: {why}"
        counts = f"{_steps(self.placed_steps)} with {self.label}"
        if self.own_steps:
            counts += f", {self.own_steps:,} of your own in the trial"
        if self.other_steps:
            counts += f", {self.other_steps:,} of your own on other batches or fetches"
        if self.trial is None:
            why = "the training was too short for a trial" if self.is_tried else "no trial"
            return f"{counts}; {why}, so the saving is unknown"
        if self.is_own_kept:
            return f"{self._as_it_is}: {self.label} was no faster in the trial"
        saved_ns = self.placed_steps * (self.trial.own_ns - self.trial.placed_ns)
        saved_ns = max(0.0, saved_ns - self.moving_s * NS_PER_S)
        told = (
            f"{counts}: about {_duration(saved_ns)} saved, {_duration(self.ready_s * NS_PER_S)} "
            "spent on getting ready"
        )
        return told if so_far else f"{told} ({_compared(self.label, self.trial)})"


def _compared(label: str, trial: TrainingTrial) -> str:
    found = trial.interval
    interval = "" if found is None else f", 95 % interval {found.low:.2f}–{found.high:.2f}"
    return (
        f"a step takes {format_ns(trial.placed_ns)} with {label} and {format_ns(trial.own_ns)} "
        f"with your own ({trial.speedup:.2f}×{interval}; {trial.counted} steps each, in turns)"
    )


def _duration(time_ns: float) -> str:
    if time_ns < _EXACT_S * NS_PER_S:
        return format_ns(time_ns)
    return format_duration(time_ns / NS_PER_S)


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"
