from __future__ import annotations

import followed_advice
import pytest
from campaign import drawn


@pytest.mark.campaign
@pytest.mark.parametrize("case", drawn(followed_advice.cases(), 2, seed=0))
def test_no_advice_that_is_followed_surely_saves_nothing(case: str) -> None:
    result = followed_advice.examine(case)
    for finding in result["findings"]:
        between_ns = finding.get("came_between_ns")
        assert between_ns is None or between_ns[1] > 0, finding
