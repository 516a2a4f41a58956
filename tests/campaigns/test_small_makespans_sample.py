from __future__ import annotations

import pytest
import small_makespans
from campaign import drawn


@pytest.mark.campaign
@pytest.mark.parametrize("case", drawn(small_makespans.cases(), 200, seed=0))
def test_the_least_makespan_of_a_small_dag_is_proved(case: str) -> None:
    assert small_makespans.is_right(small_makespans.examine(case))
