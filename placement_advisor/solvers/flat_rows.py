"""Rows of varying length as arrays, for compiled loops."""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def flat_rows(rows: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return where each row starts, the end of the last one included, and the rows in a line."""
    rows = list(rows)
    starts = np.array([0, *accumulate(map(len, rows))], np.int64)
    return starts, np.array(list(chain.from_iterable(rows)), np.int64)
