"""Names as pictures draw them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from placement_advisor.report.pictures.drawn_text import drawable, text_width_in, told_apart


def test_a_name_that_has_room_stays_as_it_is() -> None:
    assert told_apart(["dense", "dense_1"], 9, 5) == {"dense": "dense", "dense_1": "dense_1"}


def test_a_long_name_keeps_what_tells_it_from_the_others() -> None:
    names = [
        f"encoder/layer_{i}/attention/output/{part}/projection" for i in (3, 4) for part in "qk"
    ]
    short = told_apart(names, 9, 1.6)
    assert [("layer_3" in s, "layer_4" in s) for s in short.values()] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]
    assert [("q/" in s, "k/" in s) for s in short.values()] == [(True, False), (False, True)] * 2
    assert all(text_width_in(s, 9) <= 1.6 for s in short.values())


def test_a_word_is_kept_that_is_frequent_but_parts_the_two_that_are_alike() -> None:
    frequent = [f"block_{i}_attention/{part}" for i in (1, 2) for part in ("query", "key", "value")]
    alike = [f"block_{i}_attention/attention_output" for i in (1, 2)]
    short = told_apart([*frequent, *alike], 9, 1.5)
    assert [short[name] for name in alike] == ["block_1_…output", "block_2_…output"]


def test_a_word_that_tells_is_cut_if_it_has_no_room() -> None:
    layers = ("encoder_1_forward", "encoder_1_self", "decoder_1_forward")
    names = [f"{layer}_dropout" for layer in layers]
    assert told_apart(names, 9, 1.5)[names[0]] == "encoder_1_forward_…"
    assert told_apart(names, 9, 1.2)[names[0]] == "enco…forward_…"


def test_of_a_name_alone_the_end_is_kept() -> None:
    name = "compile_loss/mean_squared_error"
    assert told_apart([name], 9, 1.5)[name] == "…mean_squared_error"


def test_names_whose_words_have_no_room_are_cut_and_numbered() -> None:
    names = [f"{'n' * 100}{letter}{'n' * 100}" for letter in "ab"]
    assert [s[-3:] for s in told_apart(names, 9, 1).values()] == ["(1)", "(2)"]


def test_names_that_the_font_cannot_tell_apart_are_numbered() -> None:
    assert told_apart(["模型", "网络"], 9, 1) == {"模型": "?? (1)", "网络": "?? (2)"}


def test_what_the_font_lacks_is_a_question_mark_and_a_dollar_is_a_dollar() -> None:
    assert drawable("模 $x$ {") == "? $x$ {"


@settings(deadline=None)
@given(st.lists(st.text("ab1_/W()模 ", min_size=1, max_size=40), max_size=8))
def test_any_names_fit_and_are_told_apart(names: list[str]) -> None:
    short = told_apart(names, 9, 0.8)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))
    assert all(text_width_in(text, 9) <= 0.8 for text in short.values())
