"""What rounding decides: which of equal words a maximum takes, and whether a ReLU lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from placement_advisor.processes.calls import RemoteModule

if TYPE_CHECKING:
    from placement_advisor.processes.children import Child

parallel_live = RemoteModule("parallel_live")
_LIMIT_S = 600.0


def test_a_tie_that_goes_the_other_way_is_unverified_not_wrong(child: Child) -> None:
    found = child.call(parallel_live.verified_tie, False, time_limit_s=_LIMIT_S)
    assert found.wrong == ""
    assert found.unverified == ("squares",)


def test_a_lost_share_is_wrong_beside_a_tie(child: Child) -> None:
    found = child.call(parallel_live.verified_tie, True, time_limit_s=_LIMIT_S)
    assert found.relative_difference > 0.1
    assert found.wrong != ""


# Twice from the values that there are, then from others.
@pytest.mark.parametrize("runs", [[1, 2], [1, 2, 3]])
def test_what_differs_from_some_values_and_from_others_not_is_no_mistake(
    child: Child, runs: list[int]
) -> None:
    found = child.call(parallel_live.verified_where_one_number_differs, runs, time_limit_s=_LIMIT_S)
    assert (found.wrong, found.unverified) == ("", ())


@pytest.mark.parametrize("runs", [[1], [1, 2, 3, 4]])
def test_what_differs_from_whatever_values_or_by_chance_is_a_mistake(
    child: Child, runs: list[int]
) -> None:
    found = child.call(parallel_live.verified_where_one_number_differs, runs, time_limit_s=_LIMIT_S)
    assert found.wrong != ""
