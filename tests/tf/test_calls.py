"""What the type checker is told of calls to children holds when they run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import placement_advisor
from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule
from placement_advisor.tf import calls

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT = Path(placement_advisor.__file__).parent
runner_access = RemoteModule("runner_access")


def parsed(module: str) -> ast.Module:
    return ast.parse((ROOT.parent / f"{module.replace('.', '/')}.py").read_text())


def imported(tree: ast.AST) -> dict[str, str]:
    """Return the modules that are imported from packages, by the names that they get."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def called() -> Iterator[tuple[str, str]]:
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


def test_what_tensorflow_refuses_leaves_the_child_alive(child):
    answer = child.call(runner_access.time_collectives, "UnavailableError")
    assert isinstance(answer, CallFailure)
    assert (answer.cause, answer.child_ended) == (FailureCause.CRASHED, False)
    assert child.failure() is None
