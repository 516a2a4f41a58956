"""What reports and pictures are headed with."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement_advisor.analysis.assemble import title_of


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("functional", "ranker"),
        ("functional_12", "ranker"),
        ("sequential_1", "ranker"),
        ("model", "ranker"),
        ("deepconn", "deepconn"),
        ("train_step", "train_step"),
        ("sequential_recommender", "sequential_recommender"),
    ],
)
def test_a_name_that_keras_made_up_gives_way_to_that_of_the_file(name: str, title: str) -> None:
    assert title_of(name, Path("models/ranker.py")) == title
