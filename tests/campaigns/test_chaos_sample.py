from __future__ import annotations

from typing import TYPE_CHECKING

import chaos
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def _cache() -> Iterator[None]:
    with chaos.own_cache():
        yield


# One of each kind: some five minutes where nothing else runs.
@pytest.mark.campaign
@pytest.mark.usefixtures("_cache")
@pytest.mark.parametrize("case", chaos.cases()[: len(chaos.HITS)])
def test_what_hits_an_analysis_leaves_nothing_behind_and_breaks_no_promise(case: str) -> None:
    found = chaos.examine(case)
    if "not_run" in found:
        pytest.skip(found["not_run"])
    assert found["broken"] == [], found["said"]
