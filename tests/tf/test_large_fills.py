"""Zeros for each sample are made in a share of a batch as they are in the whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from placement_advisor.processes.calls import RemoteModule

if TYPE_CHECKING:
    from placement_advisor.processes.children import Child

parallel_live = RemoteModule("parallel_live")
_LIMIT_S = 600.0


@pytest.mark.parametrize(
    ("batch", "share", "units", "kinds"),
    [
        # 1,024 elements are filled in, 512 written out, but for a share of those.
        (32, 16, 32, ["Fill", "Fill", "Const"]),
        (16, 8, 32, ["Const", "Const", "Const"]),
        (128, 64, 32, ["Fill", "Fill", "Fill"]),
    ],
)
def test_a_share_fills_in_what_the_whole_batch_fills_in(
    child: Child, batch: int, share: int, units: int, kinds: list[str]
) -> None:
    found = child.call(parallel_live.kinds_of_zeros, batch, share, units, time_limit_s=_LIMIT_S)
    assert found == kinds
