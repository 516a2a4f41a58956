"""What steps computed, and how far two runs of the same steps are apart. Free of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Below this a tensor counts as zero: relative differences of rounding noise mean nothing.
_NEGLIGIBLE = 1e-6
# Kinds of NumPy's types that are equal or not; all others (also bfloat16) can be nearly equal.
_EXACT_KINDS = "biuOSU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The outputs of every step, in order, and all variables after the last one, by name."""

    outputs: tuple[Any, ...]
    state: dict[str, Any]

    def difference(self, reference: Results) -> float:
        """Return the largest difference from the reference; see `relative_difference`."""
        pairs = [*zip(self.outputs, reference.outputs, strict=True)]
        pairs += [(value, reference.state[name]) for name, value in self.state.items()]
        return max((relative_difference(ours, theirs) for ours, theirs in pairs), default=0.0)


def relative_difference(ours: Any, theirs: Any) -> float:
    """Return the largest difference of two arrays, relative to the second one's largest value.

    Integers, truth values and texts are equal (0) or not (infinite). NaN equals NaN, and an
    infinite value itself; either is infinitely far from anything else.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    if ours.dtype.kind in _EXACT_KINDS:
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    ours, theirs = ours.astype(wide), theirs.astype(wide)
    differ = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
    if not differ.any():
        return 0.0
    if not np.isfinite([ours[differ], theirs[differ]]).all():
        return float("inf")
    largest = float(np.max(np.abs(theirs[np.isfinite(theirs)])))
    worst = float(np.max(np.abs(ours[differ] - theirs[differ])))
    return worst / max(largest, _NEGLIGIBLE)
