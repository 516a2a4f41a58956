"""What a problem has to be before anything searches in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_problems import chain

from placement_advisor.solvers.problem import Pool


def test_times_and_sizes_are_one_for_each_op() -> None:
    # Compiled searches go by the number of an op, without a look at where a list ends.
    two = chain(1.0, 1.0)
    with pytest.raises(ValueError, match="one for each op"):
        replace(two, copy_time=(1.0,))
    with pytest.raises(ValueError, match="one for each op"):
        replace(two, size_bytes=(1, 1, 1))
    with pytest.raises(ValueError, match="one for each op"):
        replace(two, pools=(*two.pools, Pool(devices=("other",), work=(1.0,))))
