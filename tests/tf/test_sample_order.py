"""The same samples in another order: what an unsplit step computes differs by rounding alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from placement_advisor.processes.calls import RemoteModule

if TYPE_CHECKING:
    from placement_advisor.processes.children import Child

parallel_live = RemoteModule("parallel_live")
_LIMIT_S = 600.0
_ROUNDING = 1e-4


@pytest.mark.parametrize("way", ["whole", "shares"])
def test_another_order_of_samples_changes_nothing_but_rounding(child: Child, way: str) -> None:
    """Outputs with a part for each sample come back in the order of the batch."""
    as_it_is, reordered = child.call(parallel_live.reordered, "summed_loss", time_limit_s=_LIMIT_S)[
        way
    ]
    assert any(np.ndim(value) for value in as_it_is.outputs)
    for one, other in zip(as_it_is.outputs, reordered.outputs, strict=True):
        assert other == pytest.approx(one, rel=_ROUNDING)
    for name, value in as_it_is.state.items():
        assert reordered.state[name] == pytest.approx(value, rel=_ROUNDING)
    assert any(
        not np.array_equal(one.value, other.value)
        for name, given in as_it_is.given.items()
        for one, other in zip(given, reordered.given[name], strict=True)
    ), "sums were added up in the same order"
