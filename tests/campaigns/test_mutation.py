"""Mutants are one small mistake each, and what a test notices of them is told."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from core_mutants import CORE
from mutants import PROOF, explanations
from mutation import mutants, mutants_of

SOURCE = '''
"""Words 1."""

LIMIT = 7


def least(numbers: list[int], name: str = "a 2") -> int:
    """Return 3."""
    if not numbers or len(numbers) > LIMIT:
        raise ValueError(f"{name}: {len(numbers) + 4}")
    found = min(numbers, key=lambda number: -number)
    found += 1
    return found
'''


def changes(source):
    return [mutant.name.split(": ", 1)[1] for mutant in mutants_of("m.py", source)]


def test_every_kind_of_slip_is_made_and_no_word_is_changed():
    assert changes(SOURCE) == [
        "7 → 8",
        "7 → 6",
        "not numbers or len(numbers) > LIMIT → True",
        "not numbers or len(numbers) > LIMIT → False",
        "not numbers or len(numbers) > LIMIT → not numbers and len(numbers) > LIMIT",
        "not numbers or len(numbers) > LIMIT → len(numbers) > LIMIT",
        "not numbers or len(numbers) > LIMIT → not numbers",
        "not numbers → numbers",
        "len(numbers) > LIMIT → len(numbers) >= LIMIT",
        "len(numbers) > LIMIT → len(numbers) < LIMIT",
        "raise ValueError(f'{name}: {len(numbers) + 4}') → pass",
        "min(numbers, key=lambda number: -number) → max(numbers, key=lambda number: -number)",
        "min(numbers, key=lambda number: -number) → min(numbers)",
        "-number → number",
        "found += 1 → pass",
        "found += 1 → found -= 1",
        "1 → 2",
        "1 → 0",
    ]


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("sorted(a for a in b if a)", "(a for a in b if a) → (a for a in b)"),
        ("f(a, b, c)", "f(a, b, c) → f(b, a, c)"),
        ("zip(a, b, strict=True)", "zip(a, b, strict=True) → zip(a, b)"),
        ("range(2, n)", "range(2, n) → range(2, n - 1)"),
        ("a[1:]", "1 → 0"),
        ("a.b = c", "a.b = c → pass"),
        ("a.remove(b)", "a.remove(b) → pass"),
        ("x = a if b else c", "b → False"),
        ("x = a is None", "a is None → a is not None"),
        ("x = a // b", "a // b → a * b"),
        ("x = True", "True → False"),
        ("x = {a for a in b} - c", "{a for a in b} → set()"),
    ],
)
def test_a_slip_of_this_kind_is_made(source, change):
    assert change in changes(source)


def test_names_tell_mutants_apart_and_do_not_hang_on_lines():
    names = [mutant.name for mutant in mutants("solvers/lower_bounds.py")]

    assert len(set(names)) == len(names)
    assert [m.name for m in mutants_of("m.py", f"\n\n{SOURCE}")] == [
        m.name for m in mutants_of("m.py", SOURCE)
    ]


def test_a_mutant_differs_in_one_place_and_is_python():
    for mutant in mutants("solvers/lower_bounds.py"):
        ast.parse(mutant.changed)
        changed = [line for line in mutant.difference.splitlines()[3:] if line[:1] in "+-"]
        assert changed
        assert mutant.changed != mutant.source


@pytest.mark.campaign
def test_every_explanation_is_of_a_mutant_that_there_is():
    assert set(explanations()) <= {*PROOF.every_mutant, *CORE.every_mutant}
