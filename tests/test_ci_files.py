"""What this repository offers to the CI of others: a hook, an action, recipes in docs/ci.md."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from command_runs import run_here

ROOT = Path(__file__).parents[1]
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
(STEP,) = ACTION["runs"]["steps"]
RECIPES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
# Says what it was asked, as JSON.
FAKE = """#!/usr/bin/env python3
import json, sys
print(json.dumps(sys.argv[1:]))
"""


def test_the_hook_is_a_command_that_the_advisor_knows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *words = shlex.split(HOOK["entry"])
    assert name == "advisor"
    ran = run_here(*words)
    assert ran.code == 2
    assert "no pyproject.toml" in ran.err


@pytest.mark.parametrize(
    ("file", "runs"),
    [
        ("models/ranker.py", True),
        ("pyproject.toml", True),
        ("placements.lock.json", True),
        ("placements/ranker.json", True),
        ("README.md", False),
        ("pyproject.toml.orig", False),
    ],
)
def test_the_hook_runs_when_what_it_checks_may_have_changed(file, runs):
    assert bool(re.search(HOOK["files"], file)) is runs
    assert not HOOK["pass_filenames"]


def asked(tmp_path: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's step on GitHub's shell, with an `advisor` that says what it was asked."""
    (tmp_path / "advisor").write_text(FAKE)
    (tmp_path / "advisor").chmod(0o755)
    given = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
    env = {
        key: given[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]]
        for key, value in STEP["env"].items()
    }
    env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"GITHUB_STEP_SUMMARY": "a summary.md", "GITHUB_WORKSPACE": "/a space"}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


FORMATS = ["--format", "text", "--format", "github"]
FORMATS += ["--format", "markdown=a summary.md", "--format", "sarif=/a space/advisor.sarif"]


def test_the_action_checks_all_models_in_all_formats(tmp_path):
    ran = asked(tmp_path)
    assert json.loads(ran.stdout) == ["check", *FORMATS, "--"]


def test_the_action_takes_its_inputs_for_what_they_are_and_for_no_commands(tmp_path):
    models = ["--update", "$(touch hacked)", "a b; touch hacked", "`touch hacked`", "*"]
    ran = asked(
        tmp_path,
        models="\n".join(["", *models, ""]),
        **{"strict": "true", "measure": "true", "open-ports": "true"},
    )
    flags = ["--strict", "--measure", "--open-ports"]
    assert json.loads(ran.stdout) == ["check", *flags, *FORMATS, "--", *models]
    assert not (tmp_path / "hacked").exists()
    assert "${{" not in STEP["run"]


def test_the_action_refuses_what_is_neither_true_nor_false(tmp_path):
    ran = asked(tmp_path, strict="yes")
    assert ran.returncode == 2
    assert ran.stdout == "::error::strict is neither true nor false\n"


def test_without_a_model_after_the_dashes_all_are_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no pyproject.toml" in run_here("check", "--").err


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_recipes_are_yaml(recipe):
    assert yaml.safe_load(recipe)


def test_this_repository_runs_what_it_offers():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    steps = jobs["gate"]["steps"]
    assert {"uses": "./"}.items() <= steps[-1].items()
    assert any("bash .ci/run" in step.get("run", "") for step in steps)
    assert "make check" in (ROOT / ".ci" / "run").read_text().split("\n")


def test_dependencies_are_looked_at_each_week_by_the_pinned_actions_of_every_change():
    folder = ROOT / ".github" / "workflows"
    weekly = yaml.safe_load((folder / "weekly.yml").read_text())
    steps = weekly["jobs"]["audit"]["steps"]
    assert steps[-1] == {"run": "make audit"}
    assert "schedule" in weekly[True]  # YAML takes `on` for a truth value.
    used = {step["uses"] for step in steps if "uses" in step}
    assert used <= set(re.findall(r"uses: (\S+)", (folder / "ci.yml").read_text()))
    assert re.search(r"pip-audit==\$\(PIP_AUDIT_VERSION\)", (ROOT / "Makefile").read_text())
