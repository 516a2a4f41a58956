"""A check in words, which all its reports share; only ``check_json`` has its values as they are.

Names come from models and may hold anything; here they become text that drives neither a terminal
nor a log that carries out what it reads (GitHub's and Azure's take commands). Times are simulated,
and labelled so. Left out: markup of any format.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.check.problems import LASTING, CodePlace, Status
from placement_advisor.check.record import Part
from placement_advisor.report.document import NOTHING, one_line
from placement_advisor.units import NS_PER_US, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from placement_advisor.check.problems import CheckResult, ModelResult
    from placement_advisor.check.record import Cut, Difference, LayerRecord, Record

# Of each sort of change. Whoever wants all of them reads the diff of the lock file.
MAX_CHANGES = 8
_UPDATE = "advisor check --update"
# Runners of GitHub and Azure carry out `##[…]` and `##vso[…]` anywhere in a line of a log.
_COMMAND = re.compile(r"#(?=#)")
WORST_FIRST = (Status.FAILED, Status.COULD_NOT_RUN, Status.INCONCLUSIVE, Status.PASSED)
STEP = "step (simulated)"
COPIES = "copies per step"
BYTES = "bytes across per step"
_SAME = "same"
_PARTS = {Part.FORWARD: "", Part.BACKWARD: "backward pass ", Part.VARIABLES: "variables "}


class Level(StrEnum):
    """How much a result matters, in the words that GitHub and SARIF have for it; worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A problem, or why nothing can be told; at its line, or else where the model is configured.

    ``source`` is what stands at that line, ``effects`` what became worse by it.
    """

    code: str
    what: str
    place: CodePlace
    culprits: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    action: str | None = None
    source: str | None = None
    acceptance: str | None = None


class Figure(NamedTuple):
    """A figure of the step as it was locked and as it is now, both with their units."""

    label: str
    before: str
    after: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The result of one model. ``changes`` are lines as of a diff: ``+``, ``-`` or ``~`` first."""

    model: str
    placement: str
    place: CodePlace
    status: Status
    level: Level
    events: tuple[Event, ...]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...]
    changes: tuple[str, ...]
    acceptance: str | None


def tell(result: CheckResult) -> tuple[Told, ...]:
    """Return the results of all models, in their order."""
    return tuple(_told(model, result) for model in result.results)


def verdict(result: CheckResult) -> str:
    """Return what the check comes to in one line.

    >>> from placement_advisor.check.problems import CheckResult
    >>> verdict(CheckResult(lock_file="placements.lock.json", results=()))
    'no models to check'
    """
    count = Counter(model.status for model in result.results)
    if not count:
        return "no models to check"
    parts = [f"{count[status]} {status_words(status)}" for status in WORST_FIRST if count[status]]
    text = f"{count.total()} model{'s' if count.total() > 1 else ''}: {', '.join(parts)}"
    if result.strict and count[Status.INCONCLUSIVE]:
        text += " (--strict: inconclusive fails)"
    return text


def next_command(models: Sequence[Told]) -> str | None:
    """Return the command that explains what failed first, None if nothing did."""
    failed = (told.events[0] for told in models if told.status is Status.FAILED)
    first = next(failed, None)
    return None if first is None else f"advisor explain {first.code}"


def status_words(status: Status) -> str:
    """Return a status as people write it.

    >>> status_words(Status.COULD_NOT_RUN)
    'could not run'
    """
    return status.value.replace("-", " ")


def has_changed(told: Told) -> bool:
    """Whether any figure of the step did."""
    return any(figure.change != _SAME for figure in told.figures)


def details(event: Event) -> Iterator[tuple[str, str]]:
    """Return where an event happened, by what, what it does and what to do, each with a label."""
    yield "where", f"{event.place}: {event.source}" if event.source else str(event.place)
    yield from (("by", culprit) for culprit in event.culprits)
    yield from (("effect", effect) for effect in event.effects)
    if event.action is not None:
        yield "do", event.action


def sentences(event: Event) -> Iterator[str]:
    """Return all of an event, for where it stands alone."""
    yield event.what
    yield from (f"{label}: {text}" for label, text in details(event))
    if event.acceptance is not None:
        yield f"to accept: {event.acceptance}"


def plain(text: str) -> str:
    """Return text as one line that no terminal and no log of a CI system obeys.

    >>> plain("a" + chr(10) + "##[add-mask]b")
    'a # #[add-mask]b'
    """
    return _COMMAND.sub("# ", one_line(text))


def _told(model: ModelResult, result: CheckResult) -> Told:
    events = tuple(_events(model, f"{_UPDATE}, and commit {plain(result.lock_file)}"))
    notes = tuple(map(plain, model.notes))
    if not events and model.status is not Status.PASSED:
        # Then the notes are what there is to tell.
        what = "; ".join(notes) or status_words(model.status)
        events, notes = (_event(model, model.status, what),), ()
    return Told(
        model=plain(model.model),
        placement=plain(model.placement),
        place=_clean(model.place),
        status=model.status,
        level=_level(model.status, strict=result.strict),
        events=events,
        notes=notes,
        figures=tuple(_figures(model)),
        changes=tuple(map(plain, _changes(model.difference))) if model.difference else (),
        acceptance=_acceptance(model, events),
    )


def _level(status: Status, *, strict: bool) -> Level:
    if status is Status.PASSED:
        return Level.NOTE
    return Level.WARNING if status is Status.INCONCLUSIVE and not strict else Level.ERROR


def _events(model: ModelResult, update: str) -> Iterator[Event]:
    for problem in model.problems:
        yield Event(
            code=problem.code.value,
            what=plain(problem.what),
            place=_clean(problem.place or model.place),
            culprits=tuple(map(plain, problem.culprits)),
            effects=tuple(plain(f"{effect.code}: {effect.what}") for effect in problem.effects),
            action=problem.action and plain(problem.action),
            source=problem.source and plain(problem.source),
            acceptance=None if problem.code in LASTING else update,
        )
    if model.error is not None:
        hint = model.hint and plain(model.hint)
        yield _event(model, Status.COULD_NOT_RUN, plain(model.error), hint)


def _event(model: ModelResult, status: Status, what: str, action: str | None = None) -> Event:
    return Event(code=status.value, what=what, place=_clean(model.place), action=action)


def _clean(place: CodePlace) -> CodePlace:
    return place._replace(file=plain(place.file))


def _acceptance(model: ModelResult, events: Sequence[Event]) -> str | None:
    """Return how what can be accepted of all that happened is, and what cannot."""
    accepted = next((event.acceptance for event in events if event.acceptance is not None), None)
    if accepted is None:
        return None
    codes = (code for problem in model.problems for code in problem.codes)
    lasting = dict.fromkeys(code.value for code in codes if code in LASTING)
    return f"{accepted}; it does not accept {' or '.join(lasting)}" if lasting else accepted


def _figures(model: ModelResult) -> Iterator[Figure]:
    after = model.after
    if after is None:
        return
    # Devices that traded places are compared under the names that they have now.
    before = model.difference.before if model.difference else model.before
    devices = sorted({*after.memory_bytes, *(before.memory_bytes if before else ())})
    labels: list[tuple[str, Callable[[int], str]]] = [
        (STEP, _time),
        (COPIES, str),
        (BYTES, format_bytes),
        *((f"peak memory of {plain(device)} (simulated)", format_bytes) for device in devices),
    ]
    for (label, text), now, locked in zip(
        labels,
        _amounts(after, devices),
        _amounts(before, devices) if before else [None] * len(labels),
        strict=True,
    ):
        if locked is None:
            change = "new"
        elif label == STEP and before and before.versions != after.versions:
            change = "not comparable"
        else:
            change = _change(locked, now, text)
        yield Figure(
            label=label,
            before=NOTHING if locked is None else text(locked),
            after=text(now),
            change=change,
        )


def _amounts(record: Record, devices: Iterable[str]) -> list[int]:
    peaks = [record.peak_bytes(device) for device in devices]
    return [record.step_us, record.copies, record.bytes_across, *peaks]


def _change(before: int, after: int, text: Callable[[int], str]) -> str:
    if after == before:
        return _SAME
    change = f"{'+' if after > before else '-'}{text(abs(after - before))}"
    return f"{change} ({(after / before - 1) * 100:+.1f} %)" if before else change


def _time(time_us: int) -> str:
    return format_ns(time_us * NS_PER_US)


def _changes(found: Difference) -> Iterator[str]:
    layers = found.after.layers
    moved = [
        f"~ {_layer(move.layer)}: {_PARTS[move.part]}{_and(move.before)} -> {_and(move.after)}"
        for move in found.moves
    ]
    new = [f"+ {_layer(name)} on {_and(_devices(layers[name]))}" for name in found.new]
    yield from _capped(moved, "layer")
    yield from _capped(new, "layer")
    yield from _capped([f"- {_layer(name)}" for name in found.gone], "layer")
    yield from _capped([f"+ {_crossing(cut)}" for cut in found.cuts_added], "tensor")
    yield from _capped([f"- {_crossing(cut)}" for cut in found.cuts_removed], "tensor")


def _capped(lines: list[str], noun: str) -> Iterator[str]:
    yield from lines[:MAX_CHANGES]
    more = len(lines) - MAX_CHANGES
    if more > 0:
        yield f"{lines[0][0]} and {more} more {noun}{'s' if more > 1 else ''}"


def _layer(name: str) -> str:
    return f"layer {name}" if name else "ops of no layer"


def _devices(layer: LayerRecord) -> Iterable[str]:
    """Return the devices of a layer, each once, those of the forward pass first."""
    return dict.fromkeys(device for part in Part for device in layer.devices.get(part, ()))


def _crossing(cut: Cut) -> str:
    return f"tensor {cut.tensor} {cut.source} -> {cut.target} {format_bytes(cut.size_bytes)}"


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
