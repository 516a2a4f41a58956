"""A check as the public contract."""

from __future__ import annotations

import json

import jsonschema
import pytest
import sample_check
from hypothesis import given
from sample_check import check, could_not_run, failed, inconclusive, passed

from placement_advisor.check.check_result import CheckResult, Status
from placement_advisor.check.problem import ACTIONS, Code
from placement_advisor.check.record import Part, Standing
from placement_advisor.files.contract import plain
from placement_advisor.results.check import Check
from placement_advisor.results.contracts import load_schema

SCHEMA = load_schema("check")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.mark.parametrize(
    "result",
    [
        sample_check.sample(),
        check(),
        check(failed(before=None, difference=None)),
        check(inconclusive(), strict=True),
        check(passed(), could_not_run()),
    ],
)
def test_the_content_fits_its_schema(result: CheckResult) -> None:
    content = plain(Check.of(result))
    VALIDATOR.validate(content)
    assert content["exit_code"] == result.exit_code


def test_times_are_in_nanoseconds_and_memory_is_summed_up() -> None:
    (model,) = plain(Check.of(check(failed())))["results"]
    assert model["before"]["step_ns"] == 9_960_000
    assert model["after"]["peak_memory_bytes"] == {"GPU:0": 2_900_000_000, "GPU:1": 1_000_000_000}
    assert model["difference"]["growths"] == [
        {"layer": "head_wide", "before_ns": 0, "after_ns": 900_000}
    ]


def test_a_problem_has_its_cause_its_line_and_its_effects() -> None:
    problem = plain(Check.of(check(failed())))["results"][0]["problems"][0]
    assert problem["code"] == "PA101"
    assert problem["place"] == {"file": "models/ranker.py", "line": 41}
    assert problem["source"] == "gradients = tape.gradient(loss, variables)"
    assert [effect["code"] for effect in problem["effects"]] == ["slower-step", "more-copies"]


def test_the_schema_knows_every_name_that_there_is() -> None:
    model = SCHEMA["properties"]["results"]["items"]["properties"]
    move = model["difference"]["properties"]["moves"]["items"]["properties"]
    problem = model["problems"]["items"]["properties"]
    assert problem["code"]["enum"] == list(Code)
    assert problem["effects"]["items"]["properties"]["code"]["enum"] == list(ACTIONS)
    assert model["status"]["enum"] == list(Status)
    assert move["part"]["enum"] == list(Part)
    assert SCHEMA["$defs"]["Record"]["properties"]["verdict"]["enum"] == list(Standing)


@given(sample_check.names)
def test_names_come_back_as_they_were(name: str) -> None:
    content = plain(Check.of(sample_check.hostile(name)))
    VALIDATOR.validate(content)
    again = json.loads(json.dumps(content))
    assert again == content
    assert again["results"][0]["problems"][0]["what"] == name
