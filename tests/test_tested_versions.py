"""The table of versions is that of its rows, and CI runs what they say."""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tested_versions
import yaml
from packaging.requirements import Requirement
from tested_versions import (
    PAGE,
    ROOT,
    ROWS,
    Row,
    main,
    outcomes,
    read_rows,
    rows_text,
    with_row,
    with_table,
)

if TYPE_CHECKING:
    from pathlib import Path

KEPT = read_rows((ROOT / ROWS).read_text(encoding="utf-8"))
NAMES = ("Python", "TensorFlow", "Keras", "NumPy", "protobuf", "numba")
ONE = Row(
    releases=dict(zip(NAMES, ("3.11.7", "2.9.0", "3.15.1", "2.4", "6.33", None), strict=True)),
    tests=(),
    passed=1_234,
    failed=0,
    skipped=None,
    commit="abcdef0",
    date="2026-11-26",
    note="By hand.",
)
LINE = (
    "| 3.11.7 | 2.9.0 | 3.15.1 | 2.4 | 6.33 | ? "
    "| all: 1,234 passed, 0 failed, ? skipped (at abcdef0, 2026-11-26). By hand. |\n"
)
REPORT = """<testsuites><testsuite tests="5">
<testcase name="a"/><testcase name="b"><system-out>x</system-out></testcase>
<testcase name="c"><failure/></testcase><testcase name="d"><error/></testcase>
<testcase name="e"><skipped/></testcase>
</testsuite></testsuites>"""


def released(row: Row, **changes: str) -> Row:
    return replace(row, releases={**row.releases, **changes})


def locked(name: str) -> str:
    found = re.search(rf"^{name}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def ci() -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    return {name: job["strategy"]["matrix"] for name, job in workflow["jobs"].items()}


def test_a_row_is_a_line_in_which_what_nobody_wrote_down_is_asked() -> None:
    page = "Before.\n\n<!-- make versions -->\n\n| old |\n\nAfter.\n"
    head = "| Python | TensorFlow | Keras | NumPy | protobuf | numba | tests |\n"
    assert with_table(page, [ONE]) == page.replace("| old |\n", head + "| --- " * 7 + f"|\n{LINE}")


def test_a_run_replaces_that_of_the_same_tests_and_releases_alone() -> None:
    some = replace(ONE, tests=("tests/tf",))
    newer = released(ONE, TensorFlow="2.10.0")
    again = replace(released(ONE, NumPy="2.5"), note="")
    assert with_row([ONE, some], newer) == [newer, ONE, some]
    assert with_row([newer, ONE, some], again) == [newer, some, again]


def test_rows_are_read_as_they_were_written() -> None:
    again = read_rows(rows_text([ONE]))
    assert [replace(row, tests=tuple(row.tests)) for row in again] == [ONE]


def test_each_test_is_counted_once() -> None:
    assert outcomes(REPORT) == {"passed": 2, "failed": 2, "skipped": 1}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of three tests, of which one fails and one is skipped."""
    for name in (ROWS, PAGE):
        (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / ROWS).write_text(rows_text([ONE]))
    (tmp_path / PAGE).write_text("<!-- make versions -->\n\nAfter.\n")
    (tmp_path / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip('')\n"
    )
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(tested_versions, "ROOT", tmp_path)
    return tmp_path


def test_a_run_becomes_a_row_and_a_line_of_the_page_also_the_second_time(project: Path) -> None:
    for _ in range(2):
        assert main(["-q", "test_it.py"]) == pytest.ExitCode.TESTS_FAILED
        first, second = read_rows((project / ROWS).read_text())
        assert (first.passed, first.failed, first.skipped) == (1, 1, 1)
        assert first.tests == ["test_it.py"]
        assert re.fullmatch("[0-9a-f]{7}", first.commit or "")
        assert second.key == ONE.key
        page = (project / PAGE).read_text()
        assert "| `test_it.py`: 1 passed, 1 failed, 1 skipped (at " in page
        assert page.endswith(f"{LINE}After.\n")


def test_without_tests_that_ran_there_is_no_row(project: Path) -> None:
    assert main(["-q", "no_such_file.py"]) == pytest.ExitCode.USAGE_ERROR
    assert (project / ROWS).read_text() == rows_text([ONE])


def test_what_no_commit_has_is_not_tested(project: Path) -> None:
    (project / "test_it.py").write_text("def test_a(): pass\n")
    with pytest.raises(SystemExit, match=r"commit first:\n M test_it\.py"):
        main(["-q"])


def test_rows_and_page_are_as_the_command_writes_them() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert with_table(page, KEPT) == page
    assert rows_text(KEPT) == (ROOT / ROWS).read_text(encoding="utf-8")


def test_ci_runs_the_locked_releases_on_each_python_that_may_be_used() -> None:
    makefile = (ROOT / "Makefile").read_text()
    supported = re.search(r"^SUPPORTED_PYTHONS := (.*)$", makefile, re.MULTILINE)
    assert supported is not None
    assert ci()["gate"]["python"] == supported[1].split()
    tested = {row.releases["Python"] for row in KEPT}
    assert {str(each).rpartition(".")[0] for each in tested} <= {*ci()["gate"]["python"]}


def test_ci_runs_each_other_tensorflow_of_which_there_is_a_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bounds,) = (
        found.specifier
        for found in map(Requirement, project["dependencies"])
        if found.name == "tensorflow"
    )
    found = {str(row.releases["TensorFlow"]) for row in KEPT if not row.tests}
    others = {each for each in found if each in bounds and each != locked("tensorflow")}
    assert ci()["releases"]["tensorflow"] == sorted(others)
