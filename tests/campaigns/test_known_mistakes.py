"""Mistakes in bounds that tests did not notice once: each makes a bound say too much."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = "placement_advisor/solvers/lower_bounds.py"
TESTS = "tests/solvers/test_lower_bounds.py"
RECEIVED = "(received, home, step.receive_ns(tensor))"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package and of its tests."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("placement_advisor", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".hypothesis"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def exit_code(copy):
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", TESTS]
    environment = {**os.environ, "PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(copy / "numba")}
    ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    return ran.returncode, ran.stdout


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("min(map(step.begin_ns, step", "max(map(step.begin_ns, step"),
        (RECEIVED, RECEIVED.replace("step", "2 * step")),
        (RECEIVED, "(received, home, _UNLIMITED_NS)"),
        ("min((link.sender", "max((link.sender"),
        ("min((link.receiver", "max((link.receiver"),
    ],
)
def test_a_mistake_is_noticed_and_the_code_as_it_is_passes(copy, right, wrong):
    source = (ROOT / MODULE).read_text()
    assert not right or source.count(right) == 1
    (copy / MODULE).write_text(source.replace(right, wrong) if right else source)
    code, said = exit_code(copy)
    assert code == (1 if right else 0), said
