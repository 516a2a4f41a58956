import re
import shlex

import pytest
import readme_page
import typer

from placement_advisor.cli.app import app


def test_the_pages_show_an_analysis_and_what_else_they_promise():
    pages = [page.read_text(encoding="utf-8") for page in readme_page.PAGES]
    shown = [command for page in pages for command in readme_page.commands(page)]
    assert shown[0] == "advisor analyze sample_models/train_deepconn.py"
    last = [command.split(" && ")[-1] for command in shown]
    assert {command.split()[1] for command in last} >= {"analyze", "run", "show", "diff", "trace"}


def test_every_output_of_the_readme_is_of_a_command_that_it_says_to_type():
    page = readme_page.README.read_text(encoding="utf-8")
    typed = readme_page.typed(page).splitlines()
    assert typed[0].startswith("make demo ")
    assert set(readme_page.commands(page)) <= set(typed)


def test_the_readme_has_at_most_1200_words_and_says_at_once_that_no_gpu_was_used():
    page = readme_page.README.read_text(encoding="utf-8")
    assert len(page.split()) <= 1_200
    assert "No GPU was used" in page.split("\n## ")[0]


@pytest.mark.parametrize("page", readme_page.PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_have_only_options_that_the_advisor_knows(page):
    commands = typer.main.get_command(app).commands
    spans = re.findall(r"`advisor ([^`\n]+)`", page.read_text(encoding="utf-8"))
    assert spans
    for words in map(shlex.split, spans):
        if words[0] == "--help":
            continue
        known = {option for each in commands[words[0]].params for option in each.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own if word.startswith("-")} <= known, words
