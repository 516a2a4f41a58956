"""A sample of the mutants, and the mistakes in bounds that tests did not notice once."""

import random

import pytest
from mutants import PROOF, explanations
from mutation import PACKAGE, ROOT, Mutant
from workshop import Workshop

SAMPLE = 12
# Each of them makes bounds say too much.
_RECEIVED = "(received, home, step.receive_ns(tensor))"
_ONCE_UNNOTICED = (
    ("solvers/lower_bounds.py", "min(map(step.begin_ns, step", "max(map(step.begin_ns, step"),
    ("solvers/lower_bounds.py", _RECEIVED, _RECEIVED.replace("step", "2 * step")),
    ("solvers/lower_bounds.py", _RECEIVED, "(received, home, _UNLIMITED_NS)"),
    ("solvers/lower_bounds.py", "min((link.sender", "max((link.sender"),
    ("solvers/lower_bounds.py", "min((link.receiver", "max((link.receiver"),
)

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop"), PROOF.areas[0].tests)


@pytest.mark.parametrize(("module", "right", "wrong"), _ONCE_UNNOTICED)
def test_a_mistake_that_was_not_noticed_once_is(workshop, module, right, wrong):
    source = (ROOT / PACKAGE / module).read_text()
    assert source.count(right) == 1
    changed = source.replace(right, wrong)

    outcome = workshop.outcome(Mutant(name=wrong, module=module, source=source, changed=changed))
    assert outcome.killed_by is not None


def test_a_program_without_a_mistake_survives(workshop):
    source = (ROOT / PACKAGE / "solvers" / "lower_bounds.py").read_text()
    same = Mutant(
        name="none", module="solvers/lower_bounds.py", source=source, changed=f"{source}\n"
    )

    assert workshop.outcome(same).killed_by is None


def test_of_mutants_drawn_at_random_none_survives_unexplained(workshop):
    names = random.Random(7).sample(list(PROOF.mutants), SAMPLE)
    alive = [n for n in names if workshop.outcome(PROOF.mutants[n]).killed_by is None]

    assert set(alive) <= set(explanations())
