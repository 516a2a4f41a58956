"""A check as SARIF 2.1.0, for code scanning: a result for each problem, at its line.

A rule for each code of a problem, and one each for models that could not run and measurements that
do not tell. What is only told (`notes`) is no result, which code scanning would keep as an alert;
it goes with how the run went. Paths are relative to the root of the sources.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from placement_advisor import __version__
from placement_advisor.check.check_result import Status
from placement_advisor.check.judge import Code
from placement_advisor.report.check.check_words import Level, sentences, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.check.check_result import CheckResult
    from placement_advisor.check.judge import Place
    from placement_advisor.report.check.check_words import Told

SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_FINGERPRINT = "advisorCheck/v1"
_DIGEST_BYTES = 16
# What each code means, and what to do about it in general.
_RULES: dict[str, tuple[str, str]] = {
    Code.DOES_NOT_FIT: (
        "The placement no longer fits the model",
        "Layers that the placement names are gone, or new ones have no device. Place the model "
        "anew with advisor analyze, or edit the placement file.",
    ),
    Code.OUT_OF_MEMORY: (
        "A device has too little memory for the step",
        "Make the batch smaller, or move layers to a device that has memory left.",
    ),
    Code.OVER_BUDGET: (
        "The step costs more than its budget in pyproject.toml",
        "Let less cross or be held, or raise the budget that is named.",
    ),
    Code.MOVED: (
        "A layer runs on another device than before",
        "Put it back into the scope or the placement that it had, or accept the move.",
    ),
    Code.NO_KERNEL: (
        "An op on a GPU has no kernel there",
        "It runs on the host, and its tensors are copied there and back. Take it out of the "
        "device scope, best into the input pipeline.",
    ),
    Code.COPIES: (
        "More tensors cross between devices in a step",
        "Compute what is read there on that side, or send one tensor for several.",
    ),
    Code.BYTES: (
        "More bytes cross between devices in a step",
        "Cut where less crosses: before a layer that widens, after one that narrows.",
    ),
    Code.SLOWER: (
        "The simulated step takes longer",
        "See whether the layers named need to be that heavy, or split the model anew with "
        "advisor analyze.",
    ),
    Code.MEMORY: (
        "A device needs more memory at its peak",
        "See what is kept longer or is larger than before. A smaller batch needs less.",
    ),
    Code.STANDING: (
        "The placement no longer pays as it did",
        "Compared with one device alone it is predicted to be worse than before. Ask advisor "
        "analyze which placement pays now.",
    ),
    Code.NOT_LOCKED: (
        "The lock file does not have the model",
        "Write it with advisor check --update, and commit what that writes.",
    ),
    Code.MEASURED_SLOWER: (
        "The placement was measured to be slower than the locked one",
        "Two races on the same devices say so. Put the layers back where they were.",
    ),
    Code.DOES_NOT_RUN: (
        "The step does not run under its placement",
        "TensorFlow refused it, or its results are others than those of one device.",
    ),
    Status.COULD_NOT_RUN: (
        "The model could not be checked",
        "The message says why and what to do.",
    ),
    Status.INCONCLUSIVE: (
        "A measurement does not tell",
        "The machine was too noisy, or the difference too small. Run it again on a quieter one.",
    ),
}
_RULE_IDS = tuple(map(str, _RULES))


def check_as_sarif(result: CheckResult) -> dict[str, Any]:
    """Return the log, valid against the schema of SARIF 2.1.0."""
    models = tell(result)
    driver = {
        "name": "placement-advisor",
        "version": __version__,
        "rules": [_rule(name, *texts) for name, texts in _RULES.items()],
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


def _rule(name: str, short: str, help_text: str) -> dict[str, Any]:
    return {
        "id": str(name),
        "shortDescription": {"text": short},
        "help": {"text": help_text},
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
