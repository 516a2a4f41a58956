from __future__ import annotations

import pytest
import rescalings
from campaign import drawn


@pytest.mark.campaign
@pytest.mark.parametrize("case", drawn(rescalings.cases(), 24, seed=0))
def test_a_problem_in_other_words_has_the_same_answer(case: str) -> None:
    result = rescalings.examine(case)
    assert result["agree"]
    assert not result["distrusted"]
