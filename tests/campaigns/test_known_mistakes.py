"""Mistakes in bounds that tests did not notice once: each makes a bound say too much."""

import pytest
from mutation import PACKAGE, ROOT, Mutant
from workshop import Workshop

MODULE = "solvers/lower_bounds.py"
SOURCE = (ROOT / PACKAGE / MODULE).read_text()
RECEIVED = "(received, home, step.receive_ns(tensor))"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A copy of the package and of its tests, which pass on it as it is."""
    return Workshop(tmp_path_factory.mktemp("copy"), ["tests/solvers/test_lower_bounds.py"])


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("min(map(step.begin_ns, step", "max(map(step.begin_ns, step"),
        (RECEIVED, RECEIVED.replace("step", "2 * step")),
        (RECEIVED, "(received, home, _UNLIMITED_NS)"),
        ("min((link.sender", "max((link.sender"),
        ("min((link.receiver", "max((link.receiver"),
    ],
)
def test_a_mistake_is_noticed(workshop, right, wrong):
    assert SOURCE.count(right) == 1
    changed = SOURCE.replace(right, wrong)
    mutant = Mutant(name=wrong, module=MODULE, source=SOURCE, changed=changed)
    assert "test_lower_bounds.py::" in str(workshop.outcome(mutant)["killed_by"])
