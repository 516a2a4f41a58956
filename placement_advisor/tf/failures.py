"""Errors of TensorFlow, Keras and the user's code in one sentence: the cause, and what failed.

What stands around the cause is left out: the stack of whoever built the graph, the lines of code
that AutoGraph quotes, the arguments that Keras lists, what the error advises in further sentences.
All of it is kept beside the sentence.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import tensorflow as tf

from placement_advisor.errors import AdvisorError
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.tf.step_limit import what_waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.graph.op_graph import OpGraph

P = ParamSpec("P")
T = TypeVar("T")

_FAILED_NODE = re.compile(r"^Node: '?(.*?)'?\n", re.MULTILINE)
_FUNCTION_MARK = re.compile(r"\{\{function_node [^}]*\}\}\s*")
_NODE_MARK = re.compile(r"\{\{node ([^}]*)\}\}")
_ROOT_ERRORS = re.compile(r"\d+ root error\(s\) found\.\n\s*\(0\)\s*(?:[A-Z_]+: )?")
# What announces an error in further lines: AutoGraph's quotes, Keras' layer, a run's stack.
_ANNOUNCES = re.compile(r"in user code:|Exception encountered when calling |Graph execution error:")
# Keras' list of arguments, which ends its errors; and where in a graph something happened.
_ARGUMENTS = re.compile(r"^\s*(?:Call a|A)rguments received by .*", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"\[\[.*\]\].*")
# Keras prints causes in bold.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_KIND = re.compile(r"^\w+(?:Error|Exception): ")
_SENTENCE_END = re.compile(r"[.!]\s+(?=[A-Z`'\"(])")
# What other errors mean by their own words is plain enough.
_MEANINGS = {
    "merge_call": "an optimizer is applied, or a gradient exchanged, within a conditional, a loop "
    "or a tf.function, which tf.distribute refuses",
    # What TensorFlow calls a step that has to look whether its variables are there.
    "fn_with_cond": "the step makes variables in its first call, which replicas of one process "
    "cannot: make them before, those of an optimizer by optimizer.build(model.trainable_variables)",
}


def run_failure(error: BaseException) -> CallFailure:
    """Return what a report says about an error that a step ended with."""
    if isinstance(error, AdvisorError):
        return CallFailure(cause=FailureCause.CRASHED, message=error.message)
    message = _STYLE.sub("", str(getattr(error, "message", None) or error)).strip()
    # Several failed nodes are listed one after the other, then comes what went wrong.
    nodes = list(_FAILED_NODE.finditer(message))
    reason = message[nodes[-1].end() :] if nodes else message
    reason = _FUNCTION_MARK.sub("", _ROOT_ERRORS.sub("", reason))
    cause = _cause(_NODE_MARK.sub(r"\1", reason))
    kind = type(error).__name__
    in_full = f"{kind}: {message}"
    if " " not in cause:  # The key of a KeyError, or nothing.
        cause = f"{kind}: {cause}" if cause else kind
    meaning = next((told for word, told in _MEANINGS.items() if word in cause), None)
    cause = cause if meaning is None else f"{meaning} ({cause})"
    is_full = isinstance(error, tf.errors.ResourceExhaustedError | MemoryError)
    return CallFailure(
        cause=FailureCause.OUT_OF_MEMORY if is_full else FailureCause.CRASHED,
        message=f"{cause} (op {nodes[-1].group(1)!r})" if nodes else cause,
        in_full="" if message in ("", cause) or cause == in_full else in_full,
    )


def returns_failures(
    *kinds: type[Exception],
) -> Callable[[Callable[P, T]], Callable[P, T | CallFailure]]:
    """Have a function return errors of these kinds as a `CallFailure`.

    `Exception` is the kind for what runs the user's code: anything can come out of it.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T | CallFailure]:
        @wraps(function)
        def called(*args: P.args, **named: P.kwargs) -> T | CallFailure:
            try:
                return function(*args, **named)
            except kinds as error:
                return run_failure(error)

        return called

    return decorated


def step_without_end(
    error: tf.errors.DeadlineExceededError, graph: OpGraph, limit_s: float
) -> CallFailure:
    """Return what a report says of a step that reached its limit."""
    return CallFailure(
        cause=FailureCause.TIMED_OUT,
        message=f"a step did not end within {limit_s:.0f} s: {what_waits(graph)}",
        in_full=run_failure(error).message,
    )


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, its kind if it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _cause(reason: str) -> str:
    """Return the first sentence of the line that says why; empty if none does."""
    lines = [line.strip() for line in _ARGUMENTS.sub("", reason).splitlines()]
    lines = [line for line in lines if line and not _PLACE.fullmatch(line)]
    if not lines:
        return ""
    line = _KIND.sub("", lines[-1]) if _ANNOUNCES.match(lines[0]) else lines[0]
    return _SENTENCE_END.split(line, maxsplit=1)[0].removesuffix(".")
