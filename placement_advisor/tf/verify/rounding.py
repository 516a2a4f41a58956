"""How far two tensors are apart, and values that differ in the last digit. Free of TensorFlow.

Another placement adds numbers up in another order, so that the last digit of a result differs. Most
steps keep that small. Some tensors do not: a bias that cannot change the loss has a gradient of
rounding noise alone, which Adam makes as large as any other; a choice of the two best experts can
flip. How far a tensor follows rounding is seen by running the reference again from values that
differ in the last digit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.measurement.verification import EXACT_KINDS, farthest, largest

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of the run from rounded values that candidates are compared with.
ROUNDING_SEED = 20_202
# Below this a tensor counts as zero: relative differences of rounding noise mean nothing.
_NEGLIGIBLE = 1e-6


def rounded(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return values with the last digit of every float moved up or down at random."""
    random = np.random.default_rng(seed)

    def moved(array: Any) -> Any:
        if array.dtype.kind != "f":
            return array
        digit = np.finfo(array.dtype).eps
        factors = np.array([1 - digit, 1 + digit], array.dtype)
        return array * factors[random.integers(2, size=array.shape)]

    return {name: moved(np.asarray(value)) for name, value in values.items()}


def relative_difference(ours: Any, theirs: Any, negligible: float = _NEGLIGIBLE) -> float:
    """Return the largest difference of two arrays, relative to the second one's largest value.

    That value counts as ``negligible`` at least.
    Integers, truth values and texts are equal (0) or not (infinite). NaN equals NaN, and an
    infinite value itself; either is infinitely far from anything else.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    if ours.dtype.kind in EXACT_KINDS:
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    apart = farthest(ours, theirs)
    return apart / max(largest(theirs), negligible) if apart else 0.0
