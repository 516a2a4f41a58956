"""Equal words side by side: which of them a maximum takes depends on the place in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.processes.remote import RemoteModule

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
