"""The checker of prose finds what it is for, and sentences that are printed hold to it."""

from itertools import chain

import printed_sentences
import prose
import pytest

SHORT = "You type a command. "


def test_one_sentence_in_ten_may_be_long_and_none_very_long():
    long = "You " + "say " * 25 + "it. "
    assert not list(prose.problems(long + SHORT))
    assert len(list(prose.problems(long * 2 + SHORT * 17))) == 2
    assert not list(prose.problems(long * 2 + SHORT * 18))
    (found,) = prose.problems("You " + "say " * 39 + "it. ")
    assert found.startswith("41 words, 40 at any rate")


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("It was measured and then it is written down.", "passives in a row"),
        ("It was measured.", None),
        ("The table is made anew.", "'anew'"),
        ("Beside it stands a file.", "'Beside'"),
        ("Nothing is said beside that.", "'beside'"),
        ("It answers besides.", None),
        ("What a worker prints is a line.", "begin with the subject"),
        ("What does a worker print?", None),
        ("That this holds is known.", "begin with the subject"),
        ("You are told so.", "are told"),
        ("He told us.", None),
    ],
)
def test_what_is_banned_is_found(sentence, found):
    problems = list(prose.problems(sentence))
    if found is None:
        assert problems == []
    else:
        assert found in problems[0]


# Whole texts that are no sentences: a listing of files, and a warning that issue 53 measures anew.
NO_SENTENCES = ("Here is a run of `advisor doctor --run`",)


def test_the_list_is_up_to_date():
    kept = printed_sentences.LIST.read_text(encoding="utf-8")
    assert kept == printed_sentences.listing(), "run: python tests/printed_sentences.py"


def test_sentences_are_short_and_plain():
    every = chain.from_iterable(printed_sentences.by_module().values())
    texts = [text for text in every if not text.startswith(NO_SENTENCES)]
    found = [each for text in texts for each in prose.sentences(text)]
    assert not [each for each in found if len(each.split()) > prose.LONG_WORDS]
    assert not [problem for text in texts for problem in prose.problems(text)]
