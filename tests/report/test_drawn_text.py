"""Names as pictures draw them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.report.pictures.canvas import drawable, text_width_in, told_apart

WORDS = [
    f"{layer}_dropout" for layer in ("encoder_1_forward", "encoder_1_self", "decoder_1_forward")
]


@pytest.mark.parametrize(
    ("names", "width", "short"),
    [
        (["dense", "dense_1"], 5, ["dense", "dense_1"]),
        # A word that tells is cut if it has no room.
        (WORDS, 1.5, ["encoder_1_forward_…"]),
        (WORDS, 1.2, ["enco…forward_…"]),
        # Of a name alone the end is kept.
        (["compile_loss/mean_squared_error"], 1.5, ["…mean_squared_error"]),
        # Those that the font cannot tell apart are numbered.
        (["模型", "网络"], 1, ["?? (1)", "?? (2)"]),
    ],
)
def test_a_name_is_as_short_as_it_has_to_be(
    names: list[str], width: float, short: list[str]
) -> None:
    assert list(told_apart(names, 9, width).values())[: len(short)] == short


def test_a_long_name_keeps_what_tells_it_from_the_others() -> None:
    told = [(f"layer_{i}", f"{part}/") for i in (3, 4) for part in "qk"]
    names = [f"encoder/{layer}/attention/output/{part}projection" for layer, part in told]
    for words, short in zip(told, told_apart(names, 9, 1.6).values(), strict=True):
        assert all(word in short for word in words)
        assert text_width_in(short, 9) <= 1.6


def test_a_word_is_kept_that_is_frequent_but_parts_the_two_that_are_alike() -> None:
    frequent = [f"block_{i}_attention/{part}" for i in (1, 2) for part in ("query", "key", "value")]
    alike = [f"block_{i}_attention/attention_output" for i in (1, 2)]
    short = told_apart([*frequent, *alike], 9, 1.5)
    assert [short[name] for name in alike] == ["block_1_…output", "block_2_…output"]


def test_what_the_font_lacks_is_a_question_mark_and_a_dollar_is_a_dollar() -> None:
    assert drawable("模 $x$ {") == "? $x$ {"


@given(st.lists(st.text("ab1_/W()模 ", min_size=1, max_size=40), max_size=8))
def test_any_names_fit_and_are_told_apart(names: list[str]) -> None:
    short = told_apart(names, 9, 0.8)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))
    assert all(text_width_in(text, 9) <= 0.8 for text in short.values())
