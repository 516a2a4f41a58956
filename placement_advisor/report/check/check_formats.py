"""A check in the formats of CI systems: annotations of GitHub, SARIF 2.1.0.

GitHub's workflow commands are shown as annotations at lines of a pull request, about ten of a step:
errors come first, the last says how many there are beyond, and what went well is told only where
room is left. SARIF, for code scanning, is a result for each problem, at its line, with a rule for
each code, and one each for models that could not run and measurements that do not tell. What is
only told (`notes`) is no result, which code scanning would keep as an alert; it goes with how the
run went. Paths are relative to the root of the sources.

Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from placement_advisor import __version__
from placement_advisor.check.problems import EXPLANATIONS, Status
from placement_advisor.report.check.check_words import Level, sentences, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from placement_advisor.check.problems import CheckResult, CodePlace, Explanation
    from placement_advisor.report.check.check_words import Event, Told

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


def _command(name: str, place: CodePlace, title: str, lines: Iterable[str]) -> str:
    file = _property(place.file)
    text = _data("\n".join(lines))
    return f"::{name} file={file},line={place.line},title={_property(title)}::{text}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def check_as_sarif(result: CheckResult) -> dict[str, Any]:
    """Return the log, valid against the schema of SARIF 2.1.0."""
    models = tell(result)
    driver = {
        "name": "placement-advisor",
        "version": __version__,
        "rules": [_rule(name, told) for name, told in EXPLANATIONS.items()],
    }
    invocation = {
        "executionSuccessful": all(told.status is not Status.COULD_NOT_RUN for told in models),
        "exitCode": result.exit_code,
        "toolExecutionNotifications": [
            _at(told.place, Level.NOTE, f"{told.model}: {note}")
            for told in models
            for note in told.notes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [found for told in models for found in _results(told)],
    }
    return {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}


def _rule(name: str, told: Explanation) -> dict[str, Any]:
    return {
        "id": str(name),
        "shortDescription": {"text": told.title},
        "fullDescription": {"text": told.found},
        "help": {"text": told.action},
    }


def _results(told: Told) -> Iterator[dict[str, Any]]:
    count: Counter[str] = Counter()
    for event in told.events:
        # A code can come twice, such as for the memory of each device.
        identity = f"{told.model}\n{event.code}\n{count[event.code]}"
        count[event.code] += 1
        text = "\n".join(sentences(event))
        yield {
            "ruleId": event.code,
            "ruleIndex": _RULE_IDS.index(event.code),
            **_at(event.place, told.level, f"{told.model}: {text}"),
            "partialFingerprints": {
                _FINGERPRINT: blake2b(identity.encode(), digest_size=_DIGEST_BYTES).hexdigest()
            },
        }


def _at(place: CodePlace, level: Level, text: str) -> dict[str, Any]:
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
