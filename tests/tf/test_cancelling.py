"""Sums that cancel are found behind what variables are updated by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.processes.calls import RemoteModule

if TYPE_CHECKING:
    from placement_advisor.processes.children import Child

cancelling_live = RemoteModule("cancelling_live")
_LIMIT_S = 600.0


def test_state_is_put_back_once_where_nothing_that_is_looked_at_changes_it(child: Child) -> None:
    kinds, resets = child.call(cancelling_live.found_and_resets, False, time_limit_s=_LIMIT_S)
    assert kinds == ["Sum"]
    # Two steps, from exact and from rounded values: as each is made, and before it is looked at.
    assert resets == 4


def test_state_is_put_back_each_time_where_looking_changes_it(child: Child) -> None:
    kinds, resets = child.call(cancelling_live.found_and_resets, True, time_limit_s=_LIMIT_S)
    assert kinds == ["Sum"]
    assert resets > 4
