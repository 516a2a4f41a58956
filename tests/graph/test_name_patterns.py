from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.graph.name_patterns import listed, name_patterns

TOWERS = ["word_ids", "user_conv", "item_conv", "user_dense", "item_dense", "rating"]
BLOCKS = [f"block_{i}/{name}" for i in range(1, 13) for name in ("query", "key", "norm")]


def expanded(patterns: list[str], among: list[str]) -> set[str]:
    """Return the names that patterns stand for, by what a reader would make of them."""
    return {name for name in among if any(_says(pattern, name) for pattern in patterns)}


def _says(pattern: str, name: str) -> bool:
    if " … " not in pattern:
        prefix = pattern.removesuffix("*")
        return name.startswith(prefix) if prefix != pattern else name == pattern
    first, last = (re.fullmatch(r"(.*?)(\d+)(\D*)", end) for end in pattern.split(" … "))
    assert first is not None
    assert last is not None
    stem, tail = first[1], first[3].removesuffix("*")
    rest = "" if first[3] == tail else ".*"
    match = re.fullmatch(rf"{re.escape(stem)}(\d+){re.escape(tail)}{rest}", name)
    return match is not None and int(first[2]) <= int(match[1]) <= int(last[2])


def test_names_that_begin_alike_are_one_pattern() -> None:
    assert name_patterns(["user_conv", "user_dense"], TOWERS) == ["user_*"]
    assert name_patterns(["user_conv", "rating"], TOWERS) == ["user_conv", "rating"]


def test_blocks_that_count_up_are_a_range() -> None:
    assert name_patterns(BLOCKS[:18], BLOCKS) == ["block_1/* … block_6/*"]
    assert name_patterns(BLOCKS[:17], BLOCKS) == [
        "block_1/* … block_5/*",
        "block_6/query",
        "block_6/key",
    ]
    dense = ["dense", *(f"dense_{i}" for i in range(1, 12))]
    assert name_patterns(dense[:5], dense) == ["dense", "dense_1 … dense_4"]


@pytest.mark.parametrize(
    ("most", "text"), [(None, "a, b and c"), (3, "a, b and c"), (2, "a, b and 1 more")]
)
def test_lists_read_as_sentences_and_are_cut_with_their_number(most: int | None, text: str) -> None:
    assert listed(["a", "b", "c"], most) == text
    assert listed(["a"], most) == "a"


names = st.lists(
    st.lists(st.sampled_from(["a", "b", "1", "2", "3", "10", "conv"]), min_size=1, max_size=4).map(
        tuple
    ),
    unique=True,
    max_size=14,
)


@given(names, st.sampled_from("_/.@-"), st.data())
def test_patterns_stand_for_exactly_the_names(
    pieces: list[tuple[str, ...]], separator: str, data: st.DataObject
) -> None:
    among = [separator.join(name) for name in pieces]
    wanted = [name for name in among if data.draw(st.booleans())]
    patterns = name_patterns(wanted, among)
    assert expanded(patterns, among) == set(wanted)
    assert len(patterns) <= len(wanted)
