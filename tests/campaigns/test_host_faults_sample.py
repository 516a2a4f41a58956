from __future__ import annotations

from typing import TYPE_CHECKING

import host_faults
import pytest
from network_lab.lab import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def _cache() -> Iterator[None]:
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    with host_faults.own_cache():
        yield


# A minute each.
@pytest.mark.campaign
@pytest.mark.usefixtures("_cache")
@pytest.mark.parametrize(
    "case",
    [
        "hangs in timing rounds",
        "unplugged in profiling",
        "service in measuring op times on one device",
        "relay in measuring collectives",
    ],
)
def test_a_fault_of_a_host_is_noticed_and_nothing_stays_of_the_analysis(case: str) -> None:
    found = host_faults.examine(case)
    assert found["broken"] == [], found["said"]
    assert found["left"] == []
