"""The fixture `placement_check` in projects of its users, and what it costs in all others."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from edits import TAPE, Edit

from placement_advisor.check.check_models import CheckOptions, check_models
from placement_advisor.check.lock_file import read_config
from placement_advisor.check.problem_codes import Status
from placement_advisor.report import check_report  # noqa: F401 - numpy cannot be imported twice
from placement_advisor.testbed.benchmark import SilentProgress

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
SETTINGS = """
[tool.pytest.ini_options]
filterwarnings = ["error"]
[tool.advisor]
hardware = "2xV100-NVLink"
[[tool.advisor.models]]
path = "models/ranker.py:train_step"
"""


@pytest.fixture(scope="module")
def locked(tmp_path_factory, fork_server):
    """A project with a model and its lock file."""
    root = tmp_path_factory.mktemp("project")
    (root / "models").mkdir()
    shutil.copy(ROOT / "tests" / "check" / "models" / "ranker.py", root / "models")
    (root / "pyproject.toml").write_text(SETTINGS)
    config, options = read_config(root / "pyproject.toml"), CheckOptions(update=True)
    result = check_models(config, options, SilentProgress())
    assert [model.status for model in result.results] == [Status.PASSED]
    return root


@pytest.fixture
def project(pytester, monkeypatch):
    """A project in an environment in which the package is installed as it is declared today."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = pytester.mkdir("site") / "placement_advisor-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {declared['name']}\nVersion: 0\n")
    lines = [f"{name} = {module}" for name, module in declared["entry-points"]["pytest11"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    monkeypatch.syspath_prepend(metadata.parent)
    return pytester


def test_a_model_as_it_was_passes_and_a_worse_one_fails_with_its_explanation(locked, project):
    shutil.copytree(locked, project.path, dirs_exist_ok=True)
    project.makepyfile("""
        def test_ranker(placement_check):
            placement_check("models/ranker.py")
        """)
    project.runpytest_inprocess().assert_outcomes(passed=1)
    model = project.path / "models" / "ranker.py"
    model.write_text(Edit("tape", "ranker", TAPE).applied(model.read_text()))
    lock_file = project.path / "placements.lock.json"
    before = lock_file.read_bytes()
    ran = project.runpytest_inprocess()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        [
            "*models/ranker.py:train_step (pyproject.toml:*)",
            "*PA101: the backward pass of * layers has left GPU:1: its ops have no device *",
            "*where: models/ranker.py:*: gradients = tape.gradient(loss, variables)",
            "*effect: more-copies: +* copies per step *",
            "*to accept: advisor check --update, and commit placements.lock.json",
            "*1 failed*",
        ]
    )
    ran.stdout.no_fnmatch_line("*pytest_plugin.py*")
    assert lock_file.read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "model", "said"),
    [
        (SETTINGS, "models/ranked.py", "hint: did you mean models/ranker.py:train_step?"),
        (SETTINGS, "models/ranker.py", "*could-not-run: *models/ranker.py*"),
        (SETTINGS.replace("hardware", "hardwear"), "models/ranker.py", "*did you mean hardware*"),
        ("", "models/ranker.py", "hint: add"),
    ],
)
def test_what_cannot_be_checked_fails_with_what_to_do(project, settings, model, said):
    project.makepyprojecttoml(settings)
    project.makepyfile(f"def test_ranker(placement_check): placement_check({model!r})")
    ran = project.runpytest_inprocess()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines([said])
    ran.stdout.no_fnmatch_line("*Traceback*")
    ran.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_where_it_is_not_used_it_costs_nothing():
    script = """if True:
        import json, sys
        import pytest
        before = set(sys.modules)
        import placement_advisor.pytest_plugin
        print(json.dumps(sorted(set(sys.modules) - before)))
        """
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout) == [
        "placement_advisor",
        "placement_advisor.pytest_plugin",
        "placement_advisor.workload",
    ]
