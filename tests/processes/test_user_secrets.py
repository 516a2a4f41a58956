"""What no text of a child's is to quote."""

import operator
import os

import pytest

from placement_advisor.candidates import families
from placement_advisor.errors import AdvisorError
from placement_advisor.processes import calls
from placement_advisor.processes.calls import (
    CallFailure,
    FailureCause,
    redacted,
    redacted_answer,
    redacted_arguments,
    register_secrets,
)
from placement_advisor.processes.children import Child, ChildError

TEXT = "begins with hidden, and words of qwertz"


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    """Forgets what earlier tests have hidden."""
    monkeypatch.setattr(calls, "_hidden", set())


@pytest.fixture
def child(fork_server):
    """A child in a process that hides battery-staple."""
    register_secrets(("--key", "battery-staple"))
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
def test_what_an_argument_calls_a_secret_is_shown_nowhere(arguments, shown):
    assert redacted_arguments(arguments) == shown
    register_secrets(arguments)
    hidden = "hidden" in " ".join(arguments)
    assert redacted(TEXT) == (TEXT.replace("hidden", "***") if hidden else TEXT)


def test_secrets_of_the_environment_are_taken_out_of_texts(monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "top-secret")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert redacted("top-secret is false") == "*** is false"


def test_a_secret_is_known_as_a_list_of_arguments_shows_it():
    register_secrets(("--password", "back\\slash"))
    assert redacted(str(["back\\slash"])) == "['***']"


def test_a_failure_tells_no_secret_and_where_it_was():
    register_secrets(("--key", "battery-staple"))
    failure = CallFailure(
        cause=FailureCause.CRASHED,
        message="bad battery-staple",
        in_full="it is battery-staple",
        output_tail="key battery-staple",
        stack=(("train.py", 3),),
    )
    assert redacted_answer("returned", failure) == CallFailure(
        cause=FailureCause.CRASHED,
        message="bad ***",
        in_full="it is ***",
        output_tail="key ***",
        stack=(("train.py", 3),),
    )


def test_a_path_that_is_returned_stays_as_it_is():
    register_secrets(("--key", "battery-staple"))
    assert redacted_answer("returned", "/home/battery-staple") == "/home/battery-staple"


def test_an_error_of_a_child_tells_no_secret(child):
    with pytest.raises(AdvisorError, match=r"unknown candidate '\*\*\*'"):
        child.call(families.check_names, ("battery-staple",))
    with pytest.raises(ChildError, match=r"KeyError: '\*\*\*'"):
        child.call(operator.getitem, {}, "battery-staple")


def test_the_end_of_what_a_child_prints_holds_no_half_of_a_secret(child):
    child.call(print, f"battery-staple{'.' * 1_990}")
    assert "staple" not in child.printed
    failure = child.call(os._exit, 3)
    assert isinstance(failure, CallFailure)
    assert "staple" not in failure.output_tail
