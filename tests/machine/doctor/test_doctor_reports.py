import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from machines import LAPTOP, SERVER

from placement_advisor.files.contract import plain
from placement_advisor.machine.doctor_checks import Check, State
from placement_advisor.report.doctor_text import check_facts, render_doctor
from placement_advisor.report.document import text_lines
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.doctor import Doctor

GOLDEN = Path(__file__).parent / "golden"
VALIDATOR = jsonschema.Draft202012Validator(load_schema("doctor"))


def told(facts):
    content = plain(Doctor.of(facts))
    read = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    VALIDATOR.validate(read)
    return read


@pytest.mark.parametrize(("name", "facts"), [("laptop", LAPTOP), ("server", SERVER)])
def test_the_text_is_the_golden_one_and_fits_a_terminal(name, facts):
    assert max(map(len, render_doctor(facts).splitlines())) <= 100
    assert render_doctor(facts) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_findings_stand_under_one_another_however_long_their_names_are():
    names = ("cores", "localhost → another-host")
    checks = [Check(name=name, state=State.OK, finding="found") for name in names]
    assert text_lines(check_facts(checks)) == [
        "ok       cores                    found",
        "ok       localhost → another-host found",
    ]


def test_the_document_says_whether_to_analyse_what_is_next_and_null_where_nothing_is_known():
    content = told(LAPTOP)
    assert content["can_analyze"] is True
    assert content["next"] == "advisor analyze MODEL.py"
    assert content["gpus"]["pairs"] is None
    copy = content["calibrations"][0]["large_copy"]
    assert copy == {"size_bytes": 4_194_304, "copy_ns": 3_100_000}

    content = told(SERVER)
    assert content["can_analyze"] is False
    assert content["next"] == "pip install 'tensorflow<2.22,>=2.21'"
    assert [c["name"] for c in content["checks"] if c["blocks"]] == ["tensorflow", "memory"]
    pairs = content["gpus"]["pairs"]
    assert pairs[0] == {"first": 0, "second": 1, "code": "NV12", "connection": "nvlink"}
    assert pairs[4]["connection"] is None

    kept = replace(LAPTOP.calibrations[0], small_copy=None, large_copy=None)
    content = told(replace(LAPTOP, wanted_python=None, has_sys_admin=None, calibrations=(kept,)))
    assert content["python"]["wanted"] is content["gpus"]["sys_admin"] is None
    assert content["calibrations"][0]["small_copy"] is None
