"""What no text of a child's is to quote."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

import pytest

from placement_advisor.candidates import families
from placement_advisor.errors import AdvisorError
from placement_advisor.processes import user_secrets
from placement_advisor.processes.call_failure import CallFailure, FailureCause
from placement_advisor.processes.children import Child, ChildError
from placement_advisor.processes.user_secrets import (
    hide_secrets,
    shown_arguments,
    told_without_secrets,
    without_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = "begins with hidden, and words of qwertz"


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what earlier tests have hidden."""
    monkeypatch.setattr(user_secrets, "_hidden", set())


@pytest.fixture
def child(fork_server: None) -> Iterator[Child]:
    """A child in a process that hides battery-staple."""
    hide_secrets(("--key", "battery-staple"))
    with Child("loader") as own:
        yield own


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--data", "d", "--api-key", "hidden"), ("--data", "d", "--api-key", "***")),
        (("--token=hidden", "data.npz"), ("--token=***", "data.npz")),
        (("PASSWORD=hidden",), ("PASSWORD=***",)),
        (("--aws_secret", "hidden", "d"), ("--aws_secret", "***", "d")),
        (("--use-key", "--data", "d"), ("--use-key", "--data", "d")),
        (("--tokenizer", "words", "--keyboard", "qwertz"),) * 2,
    ],
)
def test_what_an_argument_calls_a_secret_is_shown_nowhere(
    arguments: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert shown_arguments(arguments) == shown
    hide_secrets(arguments)
    hidden = "hidden" in " ".join(arguments)
    assert without_secrets(TEXT) == (TEXT.replace("hidden", "***") if hidden else TEXT)


def test_secrets_of_the_environment_are_taken_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "top-secret")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert without_secrets("top-secret is false") == "*** is false"


def test_a_secret_is_known_as_a_list_of_arguments_shows_it() -> None:
    hide_secrets(("--password", "back\\slash"))
    assert without_secrets(str(["back\\slash"])) == "['***']"


def test_a_failure_tells_no_secret_and_where_it_was() -> None:
    hide_secrets(("--key", "battery-staple"))
    failure = CallFailure(
        cause=FailureCause.CRASHED,
        message="bad battery-staple",
        in_full="it is battery-staple",
        output_tail="key battery-staple",
        stack=(("train.py", 3),),
    )
    assert told_without_secrets("returned", failure) == CallFailure(
        cause=FailureCause.CRASHED,
        message="bad ***",
        in_full="it is ***",
        output_tail="key ***",
        stack=(("train.py", 3),),
    )


def test_a_path_that_is_returned_stays_as_it_is() -> None:
    hide_secrets(("--key", "battery-staple"))
    assert told_without_secrets("returned", "/home/battery-staple") == "/home/battery-staple"


def test_an_error_of_a_child_tells_no_secret(child: Child) -> None:
    with pytest.raises(AdvisorError, match=r"unknown candidate '\*\*\*'"):
        child.call(families.check_names, ("battery-staple",))
    with pytest.raises(ChildError, match=r"KeyError: '\*\*\*'"):
        child.call(operator.getitem, {}, "battery-staple")


def test_the_end_of_what_a_child_prints_holds_no_half_of_a_secret(child: Child) -> None:
    child.call(print, f"battery-staple{'.' * 1_990}")
    assert "staple" not in child.printed
    failure = child.call(os._exit, 3)
    assert isinstance(failure, CallFailure)
    assert "staple" not in failure.output_tail
