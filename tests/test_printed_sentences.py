"""The kept list of sentences is what the package prints, and holds to the rules of prose."""

from itertools import chain

import printed_sentences
import prose

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
