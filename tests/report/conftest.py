from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sample_analysis

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis


@pytest.fixture
def analysis() -> Analysis:
    return sample_analysis.sample()


@pytest.fixture
def unmeasured() -> Analysis:
    return sample_analysis.unmeasured()


@pytest.fixture
def hostile() -> Analysis:
    return sample_analysis.hostile()


@pytest.fixture
def four_devices() -> Analysis:
    return sample_analysis.four_devices()


@pytest.fixture
def not_applicable() -> Analysis:
    return sample_analysis.not_applicable()
