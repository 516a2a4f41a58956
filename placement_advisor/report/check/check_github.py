"""A check as workflow commands, which GitHub shows as annotations at lines of a pull request.

GitHub shows about ten of a step: errors come first, the last says how many there are beyond, and
what went well is told only where room is left.

Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.check.check_words import Level, sentences, tell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.check.check_result import CheckResult
    from placement_advisor.check.problem import Place
    from placement_advisor.report.check.check_words import Event, Told

MAX_ANNOTATIONS = 10
_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
_ORDER = tuple(Level)


def check_as_github(result: CheckResult) -> str:
    """Return the commands, a line each; nothing if there is nothing to say."""
    models = sorted(tell(result), key=lambda told: _ORDER.index(told.level))
    problems = [(told, event) for told in models for event in told.events]
    shown = problems
    if len(problems) > MAX_ANNOTATIONS:
        shown = problems[: MAX_ANNOTATIONS - 1]
    lines = [_problem(told, event) for told, event in shown]
    if left := problems[len(shown) :]:
        text = f"{len(left)} more problems: advisor check --verbose tells all"
        lines.append(f"::{_COMMANDS[left[0][0].level]} title=advisor check::{text}")
    lines += [_notes(told) for told in models if told.notes]
    return "".join(f"{line}\n" for line in lines[:MAX_ANNOTATIONS])


def _problem(told: Told, event: Event) -> str:
    title = f"{told.model}: {event.code}"
    return _command(_COMMANDS[told.level], event.place, title, sentences(event))


def _notes(told: Told) -> str:
    return _command("notice", told.place, told.model, told.notes)


def _command(name: str, place: Place, title: str, lines: Iterable[str]) -> str:
    file = _property(place.file)
    text = _data("\n".join(lines))
    return f"::{name} file={file},line={place.line},title={_property(title)}::{text}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
