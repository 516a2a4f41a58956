"""Which lines are the user's, and what no text of a child's is to quote."""

import operator
import os
from dataclasses import replace
from pathlib import Path

import pytest

import placement_advisor
from placement_advisor.candidates import families
from placement_advisor.errors import AdvisorError
from placement_advisor.processes import calls
from placement_advisor.processes.children import Child, ChildError


def test_the_model_file_and_what_is_beside_it_is_the_users_but_no_package_nor_the_advisor(
    tmp_path,
):
    model = tmp_path / "model.py"
    for file in (model, tmp_path / "layers" / "attention.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        assert calls.is_user_code(str(file), model)
    package = tmp_path / ".venv" / "lib" / "site-packages" / "keras.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    assert not calls.is_user_code(str(package), tmp_path / "model.py")
    assert not calls.is_user_code("<frozen importlib._bootstrap>", tmp_path / "model.py")
    init = Path(placement_advisor.__file__)
    assert calls.is_ours(str(init))
    assert not calls.is_user_code(str(init), init.parents[1] / "model.py")


TEXT = "begins with hidden, and words of qwertz"


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    """Forgets what earlier tests have hidden."""
    monkeypatch.setattr(calls, "_hidden", set())


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
    assert calls.redacted_arguments(arguments) == shown
    calls.register_secrets(arguments)
    hidden = "hidden" in " ".join(arguments)
    assert calls.redacted(TEXT) == (TEXT.replace("hidden", "***") if hidden else TEXT)


def test_secrets_of_the_environment_and_in_lists_are_taken_out_of_texts_and_paths_stay(monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "top-secret")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert calls.redacted("top-secret is false") == "*** is false"
    calls.register_secrets(("--password", "back\\slash"))
    assert calls.redacted(str(["back\\slash"])) == "['***']"
    calls.register_secrets(("--key", "battery-staple"))
    assert calls.redacted_answer("returned", "/home/battery-staple") == "/home/battery-staple"


def test_a_failure_tells_no_secret_and_where_it_was():
    calls.register_secrets(("--key", "battery-staple"))
    failure = calls.CallFailure(
        cause=calls.FailureCause.CRASHED,
        message="bad battery-staple",
        in_full="it is battery-staple",
        output_tail="key battery-staple",
        stack=(("train.py", 3),),
    )
    shown = replace(failure, message="bad ***", in_full="it is ***", output_tail="key ***")
    assert calls.redacted_answer("returned", failure) == shown


def test_no_error_and_no_end_of_what_a_child_prints_holds_a_secret(fork_server):
    calls.register_secrets(("--key", "battery-staple"))
    with Child("loader") as child:
        with pytest.raises(AdvisorError, match=r"unknown candidate '\*\*\*'"):
            child.call(families.check_names, ("battery-staple",))
        with pytest.raises(ChildError, match=r"KeyError: '\*\*\*'"):
            child.call(operator.getitem, {}, "battery-staple")
        child.call(print, f"battery-staple{'.' * 1_990}")
        assert "staple" not in child.printed
        assert "staple" not in child.call(os._exit, 3).output_tail
