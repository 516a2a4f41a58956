"""How tensors of shares are merged, where their numbers do not say it plainly."""

from __future__ import annotations

import numpy as np
import pytest

from placement_advisor.candidates.batch_split.split_graph import Merge
from placement_advisor.tf.split_merging import Repeated, merges

SHARES = (4, 4)


def chosen(wholes: dict[str, float], parts: dict[str, tuple[float, float]], gradients: set[str]):
    """Return the merge of each number, from its value at the whole batch and at two halves."""
    tensors = [(name, 0) for name in wholes]
    whole = [np.float32([value]) for value in wholes.values()]
    of_shares = [[np.float32([part[i]]) for part in parts.values()] for i in range(len(SHARES))]
    found = merges(tensors, whole, whole, of_shares, SHARES, {}, {(name, 0) for name in gradients})
    return {name: merging.merge for (name, _), merging in found.items()}


def test_a_gradient_that_nearly_cancels_goes_like_the_other_gradients():
    # 1.0 of the whole batch against 1.4 as the sum of shares and 0.7 as their mean: the mean is
    # nearer, and statistics of the batch alone could have moved it as far.
    wholes = {"plain": 6.0, "moved": 1.0, "mean": 2.0, "other mean": 3.0}
    parts = {"plain": (4.0, 2.0), "moved": (0.6, 0.8), "mean": (1.0, 3.0), "other mean": (2.0, 4.0)}
    found = chosen(wholes, parts, {"plain", "moved"})
    assert found["plain"] is Merge.SUM
    assert found["moved"] is Merge.SUM
    assert found["mean"] is found["other mean"] is Merge.MEAN


def test_where_statistics_of_the_batch_move_a_sum_a_share_over_and_over_tells():
    # A sum of 6.0, whose shares normalize by themselves: their mean is much nearer than their sum.
    # Of two times the first share it is two times 4.4.
    tensors = [("loss", 0)]
    whole, parts = [np.float32([6.0])], [[np.float32([4.4])], [np.float32([4.8])]]
    values = tensors, whole, whole, parts, SHARES, {}, set()
    assert merges(*values)["loss", 0].merge is Merge.MEAN
    repeated = Repeated(whole=[np.float32([8.8])], part=parts[0], times=2)
    told = merges(*values, repeated)["loss", 0]
    assert told.merge is Merge.SUM
    # What it is off on the whole batch is still said: replicas compute something of their own.
    assert told.difference == pytest.approx(3.2 / 6.0, rel=1e-3)


def test_what_is_clearly_nearer_decides_for_itself():
    wholes = {"plain": 6.0, "statistic": 2.0}
    parts = {"plain": (4.0, 2.0), "statistic": (1.9, 2.2)}
    assert chosen(wholes, parts, {"plain", "statistic"})["statistic"] is Merge.MEAN


def test_what_rounding_has_to_explain_gives_way_to_what_fits():
    # A loss that has nearly vanished: the last digit of a variable moves it by as much as itself.
    of_shares = [[np.float32([9.319726e-13])], [np.float32([3.107609e-16])]]
    whole, rounded = [np.float32([9.322834e-13])], [np.float32([9.9e-13])]
    (found,) = merges([("loss", 0)], whole, rounded, of_shares, SHARES, {}, set()).values()
    assert found.merge is Merge.SUM
    assert found.difference == 0
