"""A check as workflow commands, read back as GitHub's runner reads them."""

from __future__ import annotations

from typing import NamedTuple

import sample_check
from hypothesis import given
from sample_check import COPIES, LEFT, check, could_not_run, failed, inconclusive, passed

from placement_advisor.check.problem import Place
from placement_advisor.report.check.check_formats import MAX_ANNOTATIONS, check_as_github


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    data: str


def _unescaped(text: str, more: tuple[tuple[str, str], ...] = ()) -> str:
    for escaped, plain in (("%0D", "\r"), ("%0A", "\n"), *more, ("%25", "%")):
        text = text.replace(escaped, plain)
    return text


def read(line: str) -> Command:
    """Read a line by the rules of `ActionCommand.TryParseV2` of actions/runner."""
    assert line.startswith("::")
    head, data = line[2:].split("::", 1)
    name, _, properties = head.partition(" ")
    pairs = (pair.split("=", 1) for pair in properties.split(",") if pair)
    colon_and_comma = (("%3A", ":"), ("%2C", ","))
    return Command(
        name,
        {key: _unescaped(value, colon_and_comma) for key, value in pairs},
        _unescaped(data),
    )


def commands(text: str) -> list[Command]:
    return [read(line) for line in text.splitlines()]


def test_an_annotation_alone_says_what_where_why_what_to_do_and_how_to_accept() -> None:
    (command,) = commands(check_as_github(check(failed(problems=(LEFT,), notes=()))))
    assert command == Command(
        "error",
        {
            "file": "models/ranker.py",
            "line": "41",
            "title": "models/ranker.py:train_step: PA101",
        },
        "the backward pass of 1 layer has left GPU:1: its ops have no device and run on GPU:0\n"
        "where: models/ranker.py:41: gradients = tape.gradient(loss, variables)\n"
        "by: backward pass of dense_2: GPU:1 -> GPU:0 (models/ranker.py:41)\n"
        "by: dense_2/kernel GPU:0 -> GPU:1 +2.10 MB (models/ranker.py:41)\n"
        "by: 1 more\n"
        "effect: slower-step: the predicted step takes 10.4% longer (9.96 ms -> 11.0 ms, 5% are "
        "allowed)\n"
        "effect: more-copies: +4 copies per step (4 -> 8)\n"
        "do: compute gradients with tf.gradients(loss, variables) inside the tf.function\n"
        "to accept: advisor check --update, and commit placements.lock.json",
    )


def test_percent_signs_commas_and_colons_are_escaped() -> None:
    model = failed(model="a,b:c%", place=Place("p,q.toml", 3), problems=(), notes=("5 %\nmore",))
    assert check_as_github(check(model)) == (
        "::error file=p%2Cq.toml,line=3,title=a%2Cb%3Ac%25%3A failed::5 %25 more%0A"
        "where: p,q.toml:3\n"
    )


def test_errors_come_before_warnings_and_those_before_notices() -> None:
    found = commands(check_as_github(sample_check.sample()))
    assert [(command.name, command.properties["file"]) for command in found] == [
        ("error", "pyproject.toml"),
        ("error", "models/ranker.py"),
        ("error", "pyproject.toml"),
        ("warning", "pyproject.toml"),
        ("notice", "pyproject.toml"),
        ("notice", "pyproject.toml"),
    ]


def test_a_check_that_passed_without_a_word_has_no_annotations() -> None:
    assert check_as_github(check(passed())) == ""


def test_strict_makes_inconclusive_an_error() -> None:
    assert check_as_github(check(inconclusive(), strict=True)).startswith("::error ")


def test_ten_problems_are_shown_and_notices_only_where_room_is_left() -> None:
    ten = commands(check_as_github(check(*[failed(problems=(COPIES,))] * 10)))
    assert [command.name for command in ten] == ["error"] * 10
    eight = commands(check_as_github(check(*[could_not_run()] * 8, *[passed(notes=["a"])] * 5)))
    assert [command.name for command in eight] == ["error"] * 8 + ["notice"] * 2


def test_the_last_of_more_than_ten_says_how_many_there_are_and_where() -> None:
    found = commands(check_as_github(check(*[inconclusive()] * 2, *[failed()] * 5)))
    assert len(found) == MAX_ANNOTATIONS
    assert found[-1] == Command(
        "error",
        {"title": "advisor check"},
        "3 more problems: advisor check --verbose tells all",
    )


@given(sample_check.hostile_names)
def test_no_name_adds_a_command_or_a_property(name: str) -> None:
    text = check_as_github(sample_check.hostile(name))
    assert "##" not in text
    found = commands(text)
    tame = commands(check_as_github(sample_check.hostile("x")))
    assert [command.name for command in found] == [command.name for command in tame]
    for command, expected in zip(found, tame, strict=True):
        assert list(command.properties) == ["file", "line", "title"]
        assert command.data.count("\n") == expected.data.count("\n")
        assert all(line.isprintable() for line in command.data.split("\n"))
