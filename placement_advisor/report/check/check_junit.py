"""A check as JUnit XML: a suite with a case for each model, for whatever shows tests.

A model that fails is a failure, one that could not run an error, one whose measurement does not
tell was skipped, unless that counts. No times: the same check gives the same bytes. Valid against
junit-10.xsd of Jenkins' xUnit plugin, the strictest of the format's readers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from placement_advisor.check.check_result import Status
from placement_advisor.report.check.check_text import explanation
from placement_advisor.report.check.check_words import Level, tell

if TYPE_CHECKING:
    from placement_advisor.check.check_result import CheckResult
    from placement_advisor.report.check.check_words import Told

_SUITE = "advisor check"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
_FAILURE, _ERROR, _SKIPPED = "failure", "error", "skipped"


def check_as_junit(result: CheckResult) -> str:
    """Return the document."""
    models = tell(result)
    count = Counter(_outcome(told) for told in models)
    numbers = {
        "tests": str(len(models)),
        "failures": str(count[_FAILURE]),
        "errors": str(count[_ERROR]),
    }
    root = ElementTree.Element("testsuites", {"name": _SUITE, **numbers})
    attributes = {"name": _SUITE, **numbers, "skipped": str(count[_SKIPPED])}
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    for told in models:
        suite.append(_case(told))
    ElementTree.indent(root)
    return f"{_DECLARATION}\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _case(told: Told) -> ElementTree.Element:
    name = f"{told.model} ({told.placement})"
    case = ElementTree.Element("testcase", {"name": name, "classname": _SUITE})
    outcome = _outcome(told)
    if outcome is not None:
        what = {"type": told.events[0].code, "message": "; ".join(e.what for e in told.events)}
        text = "\n".join([f"{told.model} ({told.place})", *explanation(told)])
        ElementTree.SubElement(case, outcome, what).text = text
    elif told.notes:
        ElementTree.SubElement(case, "system-out").text = "\n".join(told.notes)
    return case


def _outcome(told: Told) -> str | None:
    if told.status is Status.COULD_NOT_RUN:
        return _ERROR
    return {Level.ERROR: _FAILURE, Level.WARNING: _SKIPPED, Level.NOTE: None}[told.level]
