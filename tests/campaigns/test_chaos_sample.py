import chaos
import pytest


@pytest.fixture(scope="module")
def _cache():
    with chaos.own_cache():
        yield


# One of each kind: some five minutes where nothing else runs.
@pytest.mark.campaign
@pytest.mark.usefixtures("_cache")
@pytest.mark.parametrize("case", chaos.cases()[: len(chaos.HITS)])
def test_what_hits_an_analysis_leaves_nothing_behind_and_breaks_no_promise(case):
    found = chaos.examine(case)
    if "not_run" in found:
        pytest.skip(found["not_run"])
    assert found["broken"] == [], found["said"]
