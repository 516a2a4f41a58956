"""TensorFlow's errors in one line: what failed, without the stack of whoever built the graph."""

from __future__ import annotations

import re

import tensorflow as tf

from placement_advisor.processes.call_failure import CallFailure, FailureCause

_FAILED_NODE = re.compile(r"^Node: '?(.*?)'?\n", re.MULTILINE)
_FUNCTION_MARK = re.compile(r"\{\{function_node [^}]*\}\}\s*")
_NODE_MARK = re.compile(r"\{\{node ([^}]*)\}\}")
_ROOT_ERRORS = re.compile(r"\d+ root error\(s\) found\.\n\s*\(0\)\s*(?:[A-Z_]+: )?")


def run_failure(error: BaseException) -> CallFailure:
    """Return what a report says about an error that a step ended with."""
    message = str(getattr(error, "message", None) or error).strip()
    # Several failed nodes are listed one after the other, then comes what went wrong.
    nodes = list(_FAILED_NODE.finditer(message))
    reason = message[nodes[-1].end() :] if nodes else message
    reason = _FUNCTION_MARK.sub("", _ROOT_ERRORS.sub("", reason))
    reason = _NODE_MARK.sub(r"\1", reason).strip()
    line = reason.splitlines()[0] if reason else type(error).__name__
    is_full = isinstance(error, tf.errors.ResourceExhaustedError | MemoryError)
    return CallFailure(
        cause=FailureCause.OUT_OF_MEMORY if is_full else FailureCause.CRASHED,
        message=f"{line} (op {nodes[-1].group(1)!r})" if nodes else line,
    )
