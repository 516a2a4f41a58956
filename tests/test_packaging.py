import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from program_runs import run_program

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "placement_advisor"
MODEL = """
import keras

model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(1)])
model.compile("adam", "mse")
"""
# Modules that only a program which brings their dependency ever loads.
LOADED_BY = {"pytest_plugin.py": "pytest"}


def distribution_name(requirement):
    """Return the normalized name at the front of a requirement."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def metadata_file(wheel, filename):
    archive = zipfile.ZipFile(wheel)
    (path,) = (name for name in archive.namelist() if name.endswith(f".dist-info/{filename}"))
    return archive.read(path).decode()


def declared_by(wheel):
    """Return the names of the packages that a wheel needs."""
    metadata = Parser().parsestr(metadata_file(wheel, "METADATA"))
    return {distribution_name(line) for line in metadata.get_all("Requires-Dist", [])}


def test_the_wheel_holds_modules_schemas_pages_and_static_files_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert re.fullmatch(r"placement_advisor-.*-py3-none-any\.whl", wheel.name)
    shipped = ("*.py", "py.typed", "schemas/*.schema.json", "pages/*.md", "tensorboard/static/*")
    for pattern in shipped:
        files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob(pattern)}
        assert files, pattern
        assert files <= names, pattern
    assert metadata_file(wheel, "entry_points.txt").split() == [
        *("[console_scripts]", "advisor", "=", "placement_advisor.cli.app:main"),
        *("[pytest11]", "placement-advisor", "=", "placement_advisor.pytest_plugin"),
        *("[tensorboard_plugins]", "placement", "="),
        "placement_advisor.report.tensorboard.plugin:PlacementPlugin",
    ]
    top_level = {name.split("/")[0] for name in names}
    assert len(top_level) == 2
    assert "placement_advisor" in top_level
    assert not [name for name in names if "/test_" in name or "__pycache__" in name]
    assert "Apache License" in metadata_file(wheel, "licenses/LICENSE")
    assert Parser().parsestr(metadata_file(wheel, "METADATA"))["License-Expression"] == "Apache-2.0"


def test_every_package_that_the_code_imports_is_a_declared_dependency(wheel):
    declared, distributions = declared_by(wheel), packages_distributions()
    undeclared = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            else:
                continue
            guest = LOADED_BY.get(path.relative_to(PACKAGE).as_posix())
            for top_level in {module.split(".")[0] for module in modules} - {guest}:
                if top_level in sys.stdlib_module_names or top_level == "placement_advisor":
                    continue
                providers = {distribution_name(name) for name in distributions[top_level]}
                if not providers & declared:
                    undeclared[top_level] = path.relative_to(ROOT).as_posix()
    assert undeclared == {}


def test_the_installed_wheel_answers_help_away_from_the_checkout(wheel, tmp_path):
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    install += ["--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    env = {"PYTHONPATH": str(site)}
    answer = run_program(site / "bin" / "advisor", "--help", cwd=tmp_path, env=env)
    assert "analyze" in answer.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_pip_installs_runs_a_model_away_from_the_checkout(wheel, tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    install = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", wheel]
    subprocess.run(install, check=True, timeout=1200)
    (tmp_path / "model.py").write_text(MODEL)
    clean = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    answer = subprocess.run(
        [environment / "bin" / "advisor", "analyze", "model.py", "--effort", "0.1"],
        cwd=tmp_path,
        env={**clean, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert answer.returncode == 0, answer.stderr
    analysis = json.loads((tmp_path / "advisor-out" / "model" / "analysis.json").read_text())
    assert analysis["recommendation"]["basis"] == "measured"
    assert answer.stdout.startswith("Measured on ")


def test_the_lock_pins_every_dependency_with_a_hash_and_no_registry_or_path(wheel):
    lock = (ROOT / "requirements.lock").read_text()
    pinned = {distribution_name(line) for line in re.findall(r"^\S+==", lock, re.M)}
    assert declared_by(wheel) <= pinned
    requirements = re.split(r"\n(?=\w)", re.sub(r"^ *#.*\n", "", lock, flags=re.M).strip())
    assert len(requirements) > 50
    for requirement in requirements:
        assert re.match(r"[\w.-]+==\S+ ", requirement)
        assert "--hash=sha256:" in requirement
    assert not re.search(r"://|file:|--(extra-)?index|--find-links|^/", lock, re.M)


def test_no_two_modules_of_the_tests_have_one_name():
    # Tests import them from folders that are all on the path: the first one found is meant.
    files = [path.name for path in (ROOT / "tests").rglob("*.py")]
    names = Counter(name for name in files if name not in {"conftest.py", "__init__.py"})
    assert [name for name, count in names.items() if count > 1] == []
