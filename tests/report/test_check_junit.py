"""A check as JUnit XML: valid, and with the explanation of whatever did not pass."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import sample_check
import xmlschema
from hypothesis import given
from sample_check import check, inconclusive, passed

from placement_advisor.report.check.check_formats import check_as_junit
from placement_advisor.report.check.check_text import check_as_text

SCHEMA = xmlschema.XMLSchema(Path(__file__).parent / "junit.xsd")


def test_each_model_is_a_case_with_its_outcome() -> None:
    text = check_as_junit(sample_check.sample())
    SCHEMA.validate(text)
    root = ElementTree.fromstring(text)
    (suite,) = root
    assert suite.attrib == {
        "name": "advisor check",
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert [(case.get("name"), *(part.tag for part in case)) for case in suite] == [
        ("models/deepconn.py (towers)", "system-out"),
        ("models/gone.py (auto)", "error"),
        ("models/ranker.py:train_step (placements/ranker.json)", "failure"),
        ("models/words.py (towers)", "skipped"),
    ]


def test_a_failure_has_the_explanation_that_the_terminal_has() -> None:
    root = ElementTree.fromstring(check_as_junit(sample_check.sample()))
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "PA101"
    assert failure.get("message") == (
        "the backward pass of 1 layer has left GPU:1: its ops have no device and run on GPU:0; "
        "GPU:0 needs 2.90 GB of memory, max_peak_memory is 2.50 GB"
    )
    head, *explanation = (failure.text or "").splitlines()
    assert head == "models/ranker.py:train_step (pyproject.toml:12)"
    shown = check_as_text(sample_check.sample())
    assert all(line in shown for line in explanation)
    assert explanation[-1].startswith("to accept: advisor check --update")


def test_strict_makes_inconclusive_a_failure_and_a_pass_has_nothing_to_say() -> None:
    root = ElementTree.fromstring(check_as_junit(check(inconclusive(), passed(), strict=True)))
    assert [[part.tag for part in case] for case in root[0]] == [["failure"], []]


def test_a_check_of_nothing_is_valid() -> None:
    SCHEMA.validate(check_as_junit(check()))


@given(sample_check.hostile_names)
def test_no_name_breaks_the_document(name: str) -> None:
    text = check_as_junit(sample_check.hostile(name))
    SCHEMA.validate(text)
    tame = ElementTree.fromstring(check_as_junit(sample_check.hostile("x")))
    found = ElementTree.fromstring(text)
    assert [part.tag for part in found.iter()] == [part.tag for part in tame.iter()]
    assert all(line.isprintable() and "##" not in line for line in text.splitlines())
    assert text.encode() == check_as_junit(sample_check.hostile(name)).encode()
