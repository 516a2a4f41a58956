import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from command_runs import run_here
from packaging.requirements import Requirement
from program_runs import run_program
from tested_versions import PAGE, ROWS, read_rows, rows_text, with_table
from two_matrices import TWO_MATRICES

ROOT = Path(__file__).parents[1]
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
(STEP,) = ACTION["runs"]["steps"]
_PAGE_ON_CI = (ROOT / "docs" / "how-to" / "ci.md").read_text()
RECIPES = re.findall(r"```yaml\n(.*?)```", _PAGE_ON_CI, re.DOTALL)
# Says what it was asked, as JSON.
FAKE = """#!/usr/bin/env python3
import json, sys
print(json.dumps(sys.argv[1:]))
"""


def test_the_hook_is_a_command_that_the_advisor_knows_also_without_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *words = shlex.split(HOOK["entry"])
    assert name == "advisor"
    ran = run_here(*words)
    assert ran.code == 2
    assert "no pyproject.toml" in ran.err
    assert "no pyproject.toml" in run_here("check", "--").err


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


def asked(tmp_path, **inputs):
    """Run the action's step with an `advisor` that says what it was asked."""
    (tmp_path / "advisor").write_text(FAKE)
    (tmp_path / "advisor").chmod(0o755)
    return step(tmp_path, tmp_path, summary="a summary.md", workspace="/a space", **inputs)


def step(folder, commands, *, summary, workspace, **inputs):
    """Run the action's step on GitHub's shell, in a folder, with the `advisor` among commands."""
    given = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
    env = {
        key: given[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]]
        for key, value in STEP["env"].items()
    }
    env |= {"PATH": f"{commands}:{os.environ['PATH']}", "CI": "true", "GITHUB_ACTIONS": "true"}
    env |= {"GITHUB_STEP_SUMMARY": summary, "GITHUB_WORKSPACE": workspace}
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    return run_program(*shell, STEP["run"], cwd=folder, env=env)


FORMATS = ["--format", "text", "--format", "github"]
FORMATS += ["--format", "markdown=a summary.md", "--format", "sarif=/a space/advisor.sarif"]


def test_the_action_checks_all_models_and_takes_its_inputs_for_no_commands(tmp_path):
    ran = asked(tmp_path)
    assert json.loads(ran.stdout) == ["check", *FORMATS, "--"]
    models = ["--update", "$(touch hacked)", "a b; touch hacked", "`touch hacked`", "*"]
    inputs = {"strict": "true", "measure": "true", "open-ports": "true"}
    ran = asked(tmp_path, models="\n".join(["", *models, ""]), **inputs)
    flags = ["--strict", "--measure", "--open-ports"]
    assert json.loads(ran.stdout) == ["check", *flags, *FORMATS, "--", *models]
    assert not (tmp_path / "hacked").exists()
    assert "${{" not in STEP["run"]
    ran = asked(tmp_path, strict="yes")
    assert ran.returncode == 2
    assert ran.stdout == "::error::strict is neither true nor false\n"


@pytest.mark.slow
def test_the_action_passes_what_was_locked_and_tells_what_got_worse_where_github_shows_it(tmp_path):
    workspace, summary = tmp_path / "a space", tmp_path / "summary.md"
    folder = workspace / "folder"
    folder.mkdir(parents=True)
    model, commands = folder / "m.py", Path(sys.executable).parent
    model.write_text(TWO_MATRICES)
    (folder / "pyproject.toml").write_text(
        '[tool.advisor]\nhardware = "2xV100-NVLink"\nmodels = [{ path = "m.py" }]\n'
    )
    subprocess.run([commands / "advisor", "check", "--update"], cwd=folder, check=True)

    def ran():
        summary.touch()  # As GitHub does, before each step.
        return step(folder, commands, summary=str(summary), workspace=str(workspace))

    green = ran()
    assert green.returncode == 0, green.stdout + green.stderr
    assert "1 model: 1 passed" in green.stdout
    assert "::error" not in green.stdout
    assert "1 passed" in summary.read_text()
    assert alerts(workspace) == []

    model.write_text(
        TWO_MATRICES.replace("with tf.device(SECOND), tf.name_scope", "with tf.name_scope")
    )
    line = 1 + TWO_MATRICES.split("\n").index(
        "        upper = tf.reduce_max(others @ upper_kernel, axis=1)"
    )
    red = ran()
    assert red.returncode == 1, red.stdout + red.stderr
    assert f"::error file=folder/m.py,line={line},title=m.py%3A scope-changed::" in red.stdout
    assert "scope-changed" in summary.read_text()
    assert alerts(workspace) == [("scope-changed", "folder/m.py", line)]


def alerts(workspace):
    """Return rule, file and line of what code scanning would take."""
    (run,) = json.loads((workspace / "advisor.sarif").read_text())["runs"]
    places = [(each["ruleId"], each["locations"][0]["physicalLocation"]) for each in run["results"]]
    return [
        (rule, place["artifactLocation"]["uri"], place["region"]["startLine"])
        for rule, place in places
    ]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_recipes_are_yaml(recipe):
    assert yaml.safe_load(recipe)


def test_this_repository_runs_what_it_offers():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    steps = jobs["gate"]["steps"]
    assert {"uses": "./"}.items() <= steps[-1].items()
    assert any("bash .ci/run" in step.get("run", "") for step in steps)
    assert re.search(r"^make .*\bcheck$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_dependencies_are_looked_at_each_week_by_the_pinned_actions_of_every_change():
    folder = ROOT / ".github" / "workflows"
    weekly = yaml.safe_load((folder / "weekly.yml").read_text())
    steps = weekly["jobs"]["audit"]["steps"]
    assert steps[-1] == {"run": "make audit"}
    assert "schedule" in weekly[True]  # YAML takes `on` for a truth value.
    used = {step["uses"] for step in steps if "uses" in step}
    assert used <= set(re.findall(r"uses: (\S+)", (folder / "ci.yml").read_text()))
    assert re.search(r"pip-audit==\$\(PIP_AUDIT_VERSION\)", (ROOT / "Makefile").read_text())


KEPT = read_rows((ROOT / ROWS).read_text(encoding="utf-8"))


def ci():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    return {name: job["strategy"]["matrix"] for name, job in workflow["jobs"].items()}


def test_rows_and_page_are_as_the_command_writes_them():
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert with_table(page, KEPT) == page
    assert rows_text(KEPT) == (ROOT / ROWS).read_text(encoding="utf-8")


def test_ci_runs_the_locked_releases_on_each_python_and_each_tensorflow_of_which_there_is_a_row():
    makefile = (ROOT / "Makefile").read_text()
    supported = re.search(r"^SUPPORTED_PYTHONS := (.*)$", makefile, re.MULTILINE)
    assert ci()["gate"]["python"] == supported[1].split()
    tested = {row.releases["Python"] for row in KEPT}
    assert {str(each).rpartition(".")[0] for each in tested} <= {*ci()["gate"]["python"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = map(Requirement, project["dependencies"])
    (bounds,) = (each.specifier for each in needed if each.name == "tensorflow")
    found = {str(row.releases["TensorFlow"]) for row in KEPT if not row.tests}
    lock = (ROOT / "requirements.lock").read_text()
    locked = re.search(r"^tensorflow==(\S+)", lock, re.MULTILINE)[1]
    others = {each for each in found if each in bounds and each != locked}
    assert ci()["releases"]["tensorflow"] == sorted(others)
