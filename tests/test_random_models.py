"""What is drawn; that it runs is tested in `tf/test_random_models_run.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import random_models
from random_model_parts.draw import ALL_FEATURES, MAX_MS, MIN_MS, STRUCTURES
from random_model_parts.net import Plan, Trunk, build, sized
from random_models import random_model


def test_a_dense_chain_by_hand() -> None:
    plan = Plan(
        structure="chain",
        trunks=(Trunk(kind="dense", depth=2, input_size=8),),
        heads=("score",),
    )
    parts = build(plan, 100.0).parts
    assert [(part.kind, part.shape) for part in parts] == [
        ("numbers", (32,)),
        ("dense", (96,)),
        ("dense", (96,)),
        ("head", (1,)),
    ]
    assert [part.weights for part in parts] == [0, 33 * 96, 97 * 96, 97]


def test_equal_seeds_give_equal_text_in_any_process() -> None:
    command = [sys.executable, str(Path(random_models.__file__)), "11"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout == random_model(11).text
    assert random_model(11).text != random_model(12).text


def test_every_feature_is_drawn_among_a_hundred_seeds() -> None:
    drawn = [random_model(seed).features for seed in range(100)]
    assert frozenset().union(*drawn) == ALL_FEATURES
    assert all(len(features.intersection(STRUCTURES)) == 1 for features in drawn)


def test_small_and_large_steps_are_drawn() -> None:
    targets = sorted(random_model(seed).target_ms for seed in range(100))
    assert MIN_MS <= targets[0] < 2 * MIN_MS
    assert MAX_MS / 2 < targets[-1] <= MAX_MS
    assert 4 < targets[50] < 25


@pytest.mark.parametrize("seed", range(10))
def test_a_model_has_what_is_needed_and_nothing_unwanted(seed: int) -> None:
    needs, without = {"training", "adam", "dropout"}, {"raw", "recurrent"}
    model = random_model(seed, needs=needs, without=without, learning_rate=0.25, max_ms=3.0)
    assert model.training
    assert model.features.issuperset(needs)
    assert model.features.isdisjoint(without)
    assert model.target_ms <= 3.0
    assert "LEARNING_RATE = 0.25" in model.text
    assert "Adam(LEARNING_RATE" in model.text


def test_a_word_that_is_no_feature_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no model has \['attention'\]"):
        random_model(1, needs={"attention"})


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no model has all of \['gan', 'inference'\]"):
        random_model(1, needs={"gan", "inference"})


def test_a_longer_step_is_made_of_wider_layers() -> None:
    plan = Plan(
        structure="towers",
        trunks=(Trunk(kind="conv", depth=3, input_size=16),) * 2,
        heads=("label", "score"),
    )
    weights = [
        sum(part.weights for part in sized(plan, 32, ms * 1e6, training=True).parts)
        for ms in (1, 10, 100)
    ]
    assert weights[0] < weights[1] < weights[2]
