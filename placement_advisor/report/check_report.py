"""`advisor check` reports its result as text, Markdown, GitHub annotations or SARIF 2.1.0.

All formats are made of `ModelReport`, whose texts are safe: a name from a model cannot drive
a terminal, nor a log that carries out the commands it reads (GitHub's, Azure's). Times are
simulated, and labelled so. Text has one line for each model, then what is wrong and what it
causes. Markdown is for pull requests and ``$GITHUB_STEP_SUMMARY``; it leaves out whole parts,
and says so, where it would be too long for a comment. GitHub shows about ten annotations of a
step, so errors come first and the last one counts the rest. SARIF has one result for each
problem; notes are in its invocation, since code scanning would keep them as alerts.

Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from placement_advisor import __version__
from placement_advisor.check.lock_record import Cut, Difference, LayerRecord, Part, Record
from placement_advisor.check.problem_codes import EXPLANATIONS, LASTING, Place, Status
from placement_advisor.report import document
from placement_advisor.units import NS_PER_US, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from placement_advisor.check.problem_codes import CheckResult, Explanation, ModelResult


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
    place: Place
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
class ModelReport:
    """The result of one model. ``changes`` are lines as of a diff: ``+``, ``-`` or ``~`` first."""

    model: str
    placement: str
    place: Place
    status: Status
    level: Level
    events: tuple[Event, ...]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...]
    changes: tuple[str, ...]
    acceptance: str | None


def model_reports(result: CheckResult) -> tuple[ModelReport, ...]:
    """Return the results of all models, in their order."""
    return tuple(_model_report(model, result) for model in result.results)


def verdict(result: CheckResult) -> str:
    """Return what the check comes to in one line.

    >>> from placement_advisor.check.problem_codes import CheckResult
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


def next_command(models: Sequence[ModelReport]) -> str | None:
    """Return the command that explains what failed first, None if nothing did."""
    failed = (report.events[0] for report in models if report.status is Status.FAILED)
    first = next(failed, None)
    return None if first is None else f"advisor explain {first.code}"


def status_words(status: Status) -> str:
    """Return a status as people write it.

    >>> status_words(Status.COULD_NOT_RUN)
    'could not run'
    """
    return status.value.replace("-", " ")


def has_changed(report: ModelReport) -> bool:
    """Whether any figure of the step did."""
    return any(figure.change != _SAME for figure in report.figures)


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
    return _COMMAND.sub("# ", document.one_line(text))


def _model_report(model: ModelResult, result: CheckResult) -> ModelReport:
    events = tuple(_events(model, f"{_UPDATE}, and commit {plain(result.lock_file)}"))
    notes = tuple(map(plain, model.notes))
    if not events and model.status is not Status.PASSED:
        # Then the notes are what there is to tell.
        what = "; ".join(notes) or status_words(model.status)
        events, notes = (_event(model, model.status, what),), ()
    return ModelReport(
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


def _clean(place: Place) -> Place:
    return replace(place, file=plain(place.file))


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
    rows: list[tuple[str, Callable[[int], str], Callable[[Record], int]]] = [
        (STEP, _time, attrgetter("step_us")),
        (COPIES, str, attrgetter("copies")),
        (BYTES, format_bytes, attrgetter("bytes_across")),
    ]
    for device in devices:
        label = f"peak memory of {plain(device)} (simulated)"
        rows.append((label, format_bytes, methodcaller("peak_bytes", device)))
    for label, text, amount in rows:
        now, locked = amount(after), amount(before) if before else None
        if locked is None:
            change = "new"
        elif label == STEP and before and before.versions != after.versions:
            change = "not comparable"
        else:
            change = _change(locked, now, text)
        yield Figure(
            label=label,
            before=document.NOTHING if locked is None else text(locked),
            after=text(now),
            change=change,
        )


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


_COLUMN = max(map(len, Status)) + 2
_INDENT = "  "
# With the lines around it, what a model that fails has to say fits on a screen of 30 lines.
MAX_LINES = 24


def check_as_text(result: CheckResult, *, verbose: bool = False) -> str:
    """Return the text, which ends with how many models passed and what to type next."""
    models = model_reports(result)
    parts = [list(_status_lines(models))] if models else []
    for report in models:
        if report.status is not Status.PASSED:
            head = f"{_status_word(report)} {report.model} ({report.place})"
            lines = explanation(report, verbose=verbose)
            parts.append([head, *(f"{_INDENT}{line}".rstrip() for line in lines)])
    command = next_command(models)
    parts.append([verdict(result), *([f"Next: {command}"] if command else [])])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def explanation(report: ModelReport, *, verbose: bool = False) -> list[str]:
    """Return what there is to say of a model that did not pass, with ``verbose`` all of it."""
    lines = [line for event in report.events for line in _event_lines(event)]
    lines += [f"note: {note}" for note in report.notes]
    last = [] if report.acceptance is None else [f"to accept: {report.acceptance}"]
    if verbose:
        table = document.Table(("", "locked", "now", "change"), report.figures)
        lines += ["", *document.text_lines(table)] if has_changed(report) else []
        lines += ["", *report.changes] if report.changes else []
        return [*lines, *(["", *last] if last else [])]
    more = len(lines) + len(last) - MAX_LINES
    if more > 0:
        lines = lines[: -more - 1]
        lines.append(f"and {more + 1} more lines: advisor check --verbose")
    return [*lines, *last]


def _status_lines(models: Sequence[ModelReport]) -> Iterator[str]:
    width = max(len(report.model) for report in models)
    for report in models:
        status = f"{_status_word(report):<{_COLUMN}}"
        yield f"{status}{report.model:<{width}}  {report.placement}".rstrip()
        if report.status is Status.PASSED:
            yield from (f"{'':<{_COLUMN}}note: {note}" for note in report.notes)


def _status_word(report: ModelReport) -> str:
    return status_words(report.status).upper()


def _event_lines(event: Event) -> Iterator[str]:
    yield f"{event.code}: {event.what}"
    yield from (f"{_INDENT}{label}: {text}" for label, text in details(event))


# GitHub takes comments of 65,536 characters; what posts them may add a line of its own. Its
# summaries of steps may be longer, which nobody reads.
MAX_BYTES = 65_000
# Models that did not pass, in a line each; all of them are in the table.
MAX_CAUSES = 8
_IN_SHORT = (STEP, COPIES, BYTES)
_CUT = (
    "\n**Cut here**: the page may have {max_bytes} bytes. "
    "`advisor check --verbose` prints the rest.\n"
)


def check_as_markdown(result: CheckResult, *, max_bytes: int = MAX_BYTES) -> str:
    """Return the page, which has at most ``max_bytes`` in UTF-8, but always the verdict."""
    cut = _CUT.format(max_bytes=max_bytes)
    page = ""
    parts = list(_parts(result))
    for index, part in enumerate(parts):
        longer = f"{page}\n{part}\n" if page else f"{part}\n"
        is_last = index == len(parts) - 1
        if page and len((longer if is_last else longer + cut).encode()) > max_bytes:
            return page + cut
        page = longer
    return page


def _parts(result: CheckResult) -> Iterator[str]:
    yield f"## advisor check: {verdict(result)}"
    models = model_reports(result)
    bad = sorted(
        (report for report in models if report.status is not Status.PASSED),
        key=lambda report: WORST_FIRST.index(report.status),
    )
    if bad:
        causes = [
            f"{number}. {_cause(report)}" for number, report in enumerate(bad[:MAX_CAUSES], 1)
        ]
        if len(bad) > MAX_CAUSES:
            causes.append(f"\n{len(bad) - MAX_CAUSES} more are below.")
        yield "\n".join(causes)
    accepted = dict.fromkeys(report.acceptance for report in bad if report.acceptance is not None)
    if accepted:
        yield "\n".join(f"To accept: {_text(how)}." for how in accepted)
    for number, report in enumerate(bad, 1):
        yield _explanation(number, report)
    if models:
        noted = [report for report in models if report.status is Status.PASSED and report.notes]
        notes = [
            f"- note on {_text(report.model)}: {_text(note)}"
            for report in noted
            for note in report.notes
        ]
        yield _folded("All models", _status_table(models), *(["\n".join(notes)] if notes else []))


def _cause(report: ModelReport) -> str:
    """Return what is wrong with a model, the worst of it, in a line."""
    first, *others = report.events
    at = "" if first.source is None else f" ({_text(str(first.place))})"
    line = (
        f"{_status_mark(report)} {_text(report.model)}: **{first.code}**: {_text(first.what)}{at}"
    )
    if first.effects:
        line += f"; {_text(first.effects[0])}"
    if others:
        line += f"; and {len(others)} more problem{'s' if len(others) > 1 else ''} below"
    return line


def _status_table(models: Sequence[ModelReport]) -> str:
    return document.markdown_table(
        ("", "model", "placement", *_IN_SHORT), [_row(report) for report in models]
    )


def _row(report: ModelReport) -> list[str]:
    figures = {figure.label: _in_short(figure) for figure in report.figures}
    return [
        _status_mark(report),
        _text(report.model),
        _text(report.placement),
        *(figures.get(label, document.NOTHING) for label in _IN_SHORT),
    ]


def _in_short(figure: Figure) -> str:
    if figure.before in (figure.after, document.NOTHING):
        return figure.after
    return f"{figure.before} → {figure.after}, {figure.change}"


def _explanation(number: int, report: ModelReport) -> str:
    lines = [f"Model {_text(report.model)}, placement {_text(report.placement)}:", ""]
    for event in report.events:
        lines.append(f"- **{event.code}**: {_text(event.what)}")
        lines += [f"  - {label}: {_text(text)}" for label, text in details(event)]
    lines += [f"- note: {_text(note)}" for note in report.notes]
    parts = ["\n".join(lines)]
    if has_changed(report):
        rows = [list(map(_text, figure)) for figure in report.figures]
        parts.append(document.markdown_table(("", "locked", "now", "change"), rows))
    if report.changes:
        parts.append(document.code_block("\n".join(report.changes), "diff"))
    return _folded(f"{number}. {status_words(report.status)}: details", *parts)


def _folded(title: str, *parts: str) -> str:
    """Return parts that are shown on demand; the title is HTML, and has no names in it."""
    content = "\n\n".join(parts)
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _status_mark(report: ModelReport) -> str:
    words = status_words(report.status).upper()
    return words if report.status is Status.PASSED else f"**{words}**"


def _text(text: str) -> str:
    """Return text that Markdown shows as it is, and that calls nobody: `@` begins no mention."""
    return document.escape(text).replace("@", "@&#8203;")


MAX_ANNOTATIONS = 10
_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
_ORDER = tuple(Level)
SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_FINGERPRINT = "advisorCheck/v1"
_DIGEST_BYTES = 16
_RULE_IDS = tuple(map(str, EXPLANATIONS))


def check_as_github(result: CheckResult) -> str:
    """Return the commands, a line each; nothing if there is nothing to say."""
    models = sorted(model_reports(result), key=lambda report: _ORDER.index(report.level))
    problems = [(report, event) for report in models for event in report.events]
    shown = problems
    if len(problems) > MAX_ANNOTATIONS:
        shown = problems[: MAX_ANNOTATIONS - 1]
    lines = [_problem(report, event) for report, event in shown]
    if left := problems[len(shown) :]:
        text = f"{len(left)} more problems: advisor check --verbose prints all"
        lines.append(f"::{_COMMANDS[left[0][0].level]} title=advisor check::{text}")
    lines += [_notes(report) for report in models if report.notes]
    return "".join(f"{line}\n" for line in lines[:MAX_ANNOTATIONS])


def _problem(report: ModelReport, event: Event) -> str:
    title = f"{report.model}: {event.code}"
    return _command(_COMMANDS[report.level], event.place, title, sentences(event))


def _notes(report: ModelReport) -> str:
    return _command("notice", report.place, report.model, report.notes)


def _command(name: str, place: Place, title: str, lines: Iterable[str]) -> str:
    file = _property(place.file)
    text = _data("\n".join(lines))
    return f"::{name} file={file},line={place.line},title={_property(title)}::{text}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def check_as_sarif(result: CheckResult) -> dict[str, Any]:
    """Return the log, valid against the schema of SARIF 2.1.0."""
    models = model_reports(result)
    driver = {
        "name": "placement-advisor",
        "version": __version__,
        "rules": [_rule(name, report) for name, report in EXPLANATIONS.items()],
    }
    invocation = {
        "executionSuccessful": all(report.status is not Status.COULD_NOT_RUN for report in models),
        "exitCode": result.exit_code,
        "toolExecutionNotifications": [
            _at(report.place, Level.NOTE, f"{report.model}: {note}")
            for report in models
            for note in report.notes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [found for report in models for found in _results(report)],
    }
    return {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}


def _rule(name: str, report: Explanation) -> dict[str, Any]:
    return {
        "id": str(name),
        "shortDescription": {"text": report.title},
        "fullDescription": {"text": report.found},
        "help": {"text": report.action},
    }


def _results(report: ModelReport) -> Iterator[dict[str, Any]]:
    count: Counter[str] = Counter()
    for event in report.events:
        # A code can come twice, such as for the memory of each device.
        identity = f"{report.model}\n{event.code}\n{count[event.code]}"
        count[event.code] += 1
        text = "\n".join(sentences(event))
        yield {
            "ruleId": event.code,
            "ruleIndex": _RULE_IDS.index(event.code),
            **_at(event.place, report.level, f"{report.model}: {text}"),
            "partialFingerprints": {
                _FINGERPRINT: blake2b(identity.encode(), digest_size=_DIGEST_BYTES).hexdigest()
            },
        }


def _at(place: Place, level: Level, text: str) -> dict[str, Any]:
    # Without the space, text in brackets before text in parentheses would be a link.
    return {
        "level": level.value,
        "message": {"text": text.replace("](", "] (")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": place.line},
                }
            }
        ],
    }
