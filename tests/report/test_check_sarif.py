"""A check as SARIF: valid, with a rule for every code, and stable from run to run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import sample_check
from hypothesis import given
from sample_check import (
    BUDGET,
    COPIES,
    LEFT,
    check,
    could_not_run,
    failed,
    inconclusive,
    passed,
)

from placement_advisor.check.problem import Code, Place
from placement_advisor.report.check.check_formats import check_as_sarif

if TYPE_CHECKING:
    from placement_advisor.check.check_result import CheckResult

SCHEMA = json.loads((Path(__file__).parent / "sarif.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def run(result: CheckResult) -> Any:
    content = check_as_sarif(result)
    VALIDATOR.validate(content)
    (only,) = content["runs"]
    return only


def fingerprints(result: CheckResult) -> list[str]:
    return [found["partialFingerprints"]["advisorCheck/v1"] for found in run(result)["results"]]


def test_problems_are_results_at_their_lines() -> None:
    content = run(sample_check.sample())
    assert [
        (
            found["ruleId"],
            found["level"],
            found["locations"][0]["physicalLocation"]["artifactLocation"],
            found["locations"][0]["physicalLocation"]["region"],
        )
        for found in content["results"]
    ] == [
        ("could-not-run", "error", root("pyproject.toml"), {"startLine": 24}),
        ("PA101", "error", root("models/ranker.py"), {"startLine": 41}),
        ("over-budget", "error", root("pyproject.toml"), {"startLine": 12}),
        ("inconclusive", "warning", root("pyproject.toml"), {"startLine": 28}),
    ]


def root(file: str) -> dict[str, str]:
    return {"uri": file, "uriBaseId": "%SRCROOT%"}


def test_a_message_alone_says_what_where_why_what_to_do_and_how_to_accept() -> None:
    (found,) = run(check(failed(problems=(LEFT,))))["results"]
    assert found["message"]["text"] == (
        "models/ranker.py:train_step: the backward pass of 1 layer has left GPU:1: its ops have no "
        "device and run on GPU:0\n"
        "where: models/ranker.py:41: gradients = tape.gradient(loss, variables)\n"
        "by: backward pass of dense_2: GPU:1 -> GPU:0 (models/ranker.py:41)\n"
        "by: dense_2/kernel GPU:0 -> GPU:1 +2.10 MB (models/ranker.py:41)\n"
        "by: 1 more\n"
        "effect: slower-step: the predicted step takes 10.4% longer (9.96 ms -> 11.0 ms, 5% are "
        "allowed)\n"
        "effect: more-copies: +4 copies per step (4 -> 8)\n"
        "do: compute gradients with tf.gradients(loss, variables) inside the tf.function\n"
        "to accept: advisor check --update, and commit placements.lock.json"
    )


def test_there_is_a_rule_for_every_code() -> None:
    content = run(sample_check.sample())
    rules = [rule["id"] for rule in content["tool"]["driver"]["rules"]]
    assert rules == [*Code, "could-not-run", "inconclusive"]
    for found in content["results"]:
        assert rules[found["ruleIndex"]] == found["ruleId"]


def test_what_is_only_told_is_no_result() -> None:
    content = run(check(passed(notes=["better: -2 copies"])))
    assert content["results"] == []
    (invocation,) = content["invocations"]
    assert invocation["executionSuccessful"]
    (told,) = invocation["toolExecutionNotifications"]
    assert (told["level"], told["message"]["text"]) == (
        "note",
        "models/deepconn.py: better: -2 copies",
    )


def test_a_run_in_which_a_model_could_not_be_checked_was_not_successful() -> None:
    (invocation,) = run(check(passed(), could_not_run()))["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)


def test_strict_makes_inconclusive_an_error() -> None:
    (found,) = run(check(inconclusive(), strict=True))["results"]
    assert found["level"] == "error"


def test_a_fingerprint_stays_when_numbers_and_lines_change_and_differs_otherwise() -> None:
    moved = replace(COPIES, what="+9 copies per step (4 -> 13)", place=Place("b.py", 7))
    first = fingerprints(check(failed(problems=(COPIES, BUDGET, BUDGET))))
    assert len(set(first)) == 3
    assert fingerprints(check(failed(problems=(moved, BUDGET, BUDGET)))) == first
    other = fingerprints(check(failed(problems=(COPIES, BUDGET, BUDGET), model="other.py")))
    assert not set(first) & set(other)


def test_a_path_with_blanks_is_a_uri() -> None:
    (found,) = run(check(failed(problems=(replace(COPIES, place=Place("my models/ä.py", 1)),))))[
        "results"
    ]
    location = found["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == "my%20models/%C3%A4.py"


def test_places_of_a_folder_of_the_repository_are_named_from_its_root() -> None:
    placed = replace(COPIES, place=Place("../placements/p.json", 1))
    result = check(failed(problems=(LEFT, placed))).within(Path("models/here"))
    assert [
        found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for found in run(result)["results"]
    ] == ["models/here/models/ranker.py", "models/placements/p.json"]


@given(sample_check.hostile_names)
def test_no_name_breaks_the_log_or_makes_a_link(name: str) -> None:
    content = run(sample_check.hostile(name))
    text = json.dumps(content, ensure_ascii=False)
    assert json.loads(text.encode()) == content
    assert all(line.isprintable() and "##" not in line for line in text.splitlines())
    assert "](" not in text
