"""What is told of the errors of simulations by assumed costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import sample_analysis

from placement_advisor.report.analysis.expected_errors import MEDIAN_OF, MODELS, expected_error
from placement_advisor.report.analysis.full_text import full_text
from placement_advisor.report.analysis.markdown import render_markdown
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.analysis.analysis_result import Analysis

TOLD = "Expect errors"


def test_candidates_whose_errors_are_known_are_told_with_them() -> None:
    told = expected_error(["single", "alternating", "own"])
    assert f"on {MODELS} models" in told
    assert f"alternating {format_share(MEDIAN_OF['alternating'])}" in told
    assert "towers" not in told
    assert "own" not in told


@pytest.mark.parametrize("report", [full_text, render_markdown])
def test_it_is_told_where_costs_were_assumed_for_stand_ins_and_nowhere_else(
    report: Callable[[Analysis], str],
) -> None:
    unmeasured = sample_analysis.unmeasured()
    assert TOLD in report(unmeasured)
    assert TOLD not in report(sample_analysis.sample())
    elsewhere = replace(unmeasured.testbed, stand_in=False)
    assert TOLD not in report(replace(unmeasured, testbed=elsewhere))
