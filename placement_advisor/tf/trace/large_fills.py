"""Tensors of zeros or ones: written out by TensorFlow if they are small, else filled in by an op.

A step traced at a share of its batch would be another graph where its zeros for each sample are
small and those of the whole batch are not. So the share is traced *as* the whole was: what that
fills in, this does too. Which of them those are is read from the graph of the whole, so that
functions which were traced before count as well. Left out: functions that were traced at several
sizes, on both sides of the limit; there TensorFlow decides.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bodies of loops and branches have numbers in their names that each trace counts on.
_COUNTED = re.compile(r"_\d+|_rewritten$")

# A function's name and that of an op in it.
Fill = tuple[str, str]


def large_fills(graph: Any) -> frozenset[Fill]:
    """Return the tensors that a traced graph, or a function in it, fills in when it runs."""
    found: dict[str, set[Fill]] = {"Fill": set(), "Const": set()}
    for each in (graph, *(function.graph for function in graph._functions.values())):
        for op in each.get_operations():
            if op.type in found:
                found[op.type].add((_name(each), op.name))
    return frozenset(found["Fill"] - found["Const"])


@contextmanager
def filled_in(fills: frozenset[Fill]) -> Iterator[None]:
    """Trace what is traced within so that it fills in these, however small they are."""
    own_choice = array_ops._constant_if_small

    def constant_if_small(value: Any, shape: Any, dtype: Any, name: str, layout: Any = None) -> Any:
        if (_name(ops.get_default_graph()), name.rstrip("/")) in fills:
            return None
        return own_choice(value, shape, dtype, name, layout=layout)

    array_ops._constant_if_small = constant_if_small
    try:
        yield
    finally:
        array_ops._constant_if_small = own_choice


def _name(graph: Any) -> str:
    return _COUNTED.sub("", getattr(graph, "name", ""))
