"""Calls to children: their types hold, and errors of TensorFlow are told in one line."""

import ast
from pathlib import Path

import pytest

import placement_advisor
from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule
from placement_advisor.tf import calls

runner_access = RemoteModule("runner_access")
failing_steps = RemoteModule("failing_steps")

ROOT = Path(placement_advisor.__file__).parent


def parsed(module):
    return ast.parse((ROOT.parent / f"{module.replace('.', '/')}.py").read_text())


def imported(tree):
    """Return the modules that are imported from packages, by the names that they get."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def called():
    """Yield each function that is taken from the modules of `calls`, as module and name."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        if calls.__name__ not in text:
            continue
        tree = ast.parse(text)
        names = {
            name: getattr(calls, name).__name__
            for name, full in imported(tree).items()
            if full == f"{calls.__name__}.{name}"
        }
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=function) if name in names:
                    yield names[name], function


def test_a_name_stands_for_the_module_that_the_type_checker_takes_it_for():
    checked = imported(parsed(calls.__name__))
    assert {name: getattr(calls, name).__name__ for name in calls.__all__} == {
        name: checked[name] for name in calls.__all__
    }


def test_what_is_called_is_a_plain_function_whose_answer_has_a_type():
    found = set(called())
    assert ("placement_advisor.tf.run.runner", "prepare") in found
    for module, name in found:
        (function,) = (
            node
            for node in parsed(module).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        )
        assert function.returns is not None, f"{module}.{name}"
        assert ast.unparse(function.returns) != "Any", f"{module}.{name}"


@pytest.mark.parametrize(
    ("failing", "start", "end", "in_full"),
    [
        # The reason and the op are told without the stack.
        (
            "of_a_session",
            "Matrix size-incompatible: In[0]: [2,1], In[1]: [3,2]",
            "(op 'product')",
            "",
        ),
        # An error within a function is told without its internal name.
        ("of_a_function", "Matrix size-incompatible: In[0]: [1,1], In[1]: [3,2]", "", ""),
        # Of several errors the first is told.
        ("of_several_roots", "first reason (op 'b')", "(op 'b')", "second reason"),
        # An error without words is named; the key of an error goes with its kind.
        ("without_words", "KeyError", "KeyError", None),
        ("of_a_key", "KeyError: 'weights'", "'weights'", None),
        # Of an error in many lines the cause is told, and all of it kept.
        (
            "of_user_code",
            "Dimensions must be equal, but are 2 and 3",
            "",
            "ValueError: in user code:\n\n",
        ),
        ("of_a_layer", "it takes no input", "it takes no input", "Not this one"),
        ("of_a_layer", "it takes no input", "it takes no input", "Arguments received by"),
    ],
)
def test_an_error_is_told_in_one_line_and_kept_in_full(child, failing, start, end, in_full):
    failure = child.call(getattr(failing_steps, failing))
    assert failure.cause is FailureCause.CRASHED
    assert failure.message.startswith(start)
    assert failure.message.endswith(end)
    assert "\n" not in failure.message
    assert failure.in_full == "" if in_full is None else in_full in failure.in_full
    assert failure.in_full.replace("\n", "").replace("\t", "").isprintable()


def test_running_out_of_memory_is_told_apart(child):
    assert child.call(failing_steps.of_memory) == CallFailure(
        cause=FailureCause.OUT_OF_MEMORY,
        message="OOM when allocating",
        in_full="ResourceExhaustedError: OOM when allocating\nmore",
    )


def test_what_tf_distribute_refuses_is_told_as_the_cause_that_it_is(child):
    failure = child.call(failing_steps.of_an_optimizer_in_a_conditional)
    assert failure.message == (
        "an optimizer is applied, or a gradient exchanged, within a conditional, a loop or a "
        "tf.function, which tf.distribute refuses (`merge_call` called while defining a new graph "
        "or a tf.function)"
    )
    assert "please avoid nested `tf.function`s" in failure.in_full
