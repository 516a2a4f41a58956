"""Two lists of test parameters, each of one tried with each of the other."""

import pytest


def pairs(rows, columns):
    """Return all pairs; the default suite has one for each row, with each column in its turn.

    The others are slow. A column may be a parameter with marks of its own.
    """
    return [
        _pair(row, column, is_slow=i % len(columns) != j)
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]


def _pair(row, column, *, is_slow):
    marks = [pytest.mark.slow] if is_slow else []
    if isinstance(column, type(pytest.param())):
        marks += column.marks
        (column,) = column.values
    return pytest.param(row, column, marks=marks)
