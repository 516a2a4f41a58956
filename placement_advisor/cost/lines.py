"""A line through measured times, fixed part and part per byte, right in proportion everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def relative_line(
    points: Sequence[tuple[float, float]], *, least_slope: float = 0.0
) -> tuple[float, float]:
    """Return fixed part and slope of the line that fits points (size, time > 0) best.

    Least squares on (fit - measured) / measured, so that small sizes count as much as large ones.
    Neither part is below its least value: where the best line would be, the other part alone is
    fitted.

    Raises:
        ValueError: no points, or a time that is not positive.
    """
    if not points or any(time <= 0 for _, time in points):
        raise ValueError("a line needs points with positive times")
    # With u = 1/t and v = x/t the relative error of fixed + slope · x is fixed·u + slope·v - 1.
    u = np.array([1 / time for _, time in points])
    v = np.array([size / time for size, time in points])
    # Columns of equal length keep the solver's rank decision free of units.
    scale = np.array([np.linalg.norm(u), np.linalg.norm(v) or 1.0])
    solution = np.linalg.lstsq(np.column_stack([u, v]) / scale, np.ones(len(points)), rcond=None)[0]
    fixed, slope = (float(x) for x in solution / scale)
    if fixed < 0:
        fixed, slope = 0.0, float(v.sum() / (v @ v))
    if slope < least_slope:
        slope = least_slope
        fixed = max(0.0, float((u.sum() - slope * (u @ v)) / (u @ u)))
    return fixed, slope
