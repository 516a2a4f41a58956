"""Models drawn at random, where their user has them: placed and split, they learn the same."""

from __future__ import annotations

import pytest

from placement_advisor.processes.calls import RemoteModule

random_live = RemoteModule("random_live")
pytestmark = pytest.mark.campaign
# Own train_step, raw, two optimizers, subclassed, a GAN among them.
SEEDS = (1, 11, 32, 22)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_drawn_at_random_is_placed_and_split_and_learns_the_same(child, seed, tmp_path):
    found = child.call(random_live.through_all, seed, str(tmp_path))
    assert found["place"] <= 1
    # Where replicas draw numbers or normalize by themselves, they learn something else.
    if not found.get("refused") and not found["own"]:
        assert found["make_parallel"] <= 1
