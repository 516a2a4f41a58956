"""The table of docs/reference/versions.md: with which releases `make versions` ran the tests.

A run becomes a row of tested_versions.json, in place of the row of the same tests with the same
Python, TensorFlow and Keras. A row says which commit was tested, so nothing may differ from it
but rows and their table. What CI runs beside the locked releases is held to the rows by
test_ci_files.py. Notes of rows, and what is said around the table, are written by hand.

Arguments: options of pytest, each with its value in one word (`-n2`), and which tests to run, all
if none is named.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
ROWS = "tests/tested_versions.json"
PAGE = "docs/reference/versions.md"
# As the page calls them, and as they are installed.
_LIBRARIES = ("TensorFlow", "Keras", "NumPy", "protobuf", "numba")
_DISTRIBUTIONS = {name: name.lower() for name in _LIBRARIES}
_COLUMNS = ("Python", *_DISTRIBUTIONS)
# Those of which the page gives bounds.
_KEY = ("Python", "TensorFlow", "Keras")
_OUTCOMES = ("passed", "failed", "skipped")
_TABLE = re.compile(r"^(<!-- make versions -->\n\n)(?:\|.*\n)*", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run of tests; None is what was not written down.

    ``tests`` are files and folders, none if all ran that `make test` runs.
    """

    releases: Mapping[str, str | None]
    tests: Sequence[str]
    passed: int | None
    failed: int | None
    skipped: int | None
    commit: str | None
    date: str
    note: str = ""

    @property
    def key(self):
        """What a later run has to share to take this one's place."""
        return (*(self.releases[name] for name in _KEY), *self.tests)


def read_rows(text):
    """Return the rows of a file."""
    return [Row(**content) for content in json.loads(text)]


def rows_text(rows):
    """Return what `read_rows` reads."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"


def with_row(rows, new):
    """Return rows with one more, which replaces that of its key; the newest TensorFlow first."""
    return sorted([*(row for row in rows if row.key != new.key), new], key=_age, reverse=True)


def _age(row):
    found = (row.releases[name] or "" for name in _KEY[::-1])
    python, tensorflow, keras = ([int(n) for n in re.findall(r"\d+", each)] for each in found)
    return [tensorflow, python, keras]


def with_table(page, rows):
    """Return a page with the table of these rows."""
    lines = [[*_COLUMNS, "tests"], ["---"] * (len(_COLUMNS) + 1)]
    lines += [[*(row.releases[name] or "?" for name in _COLUMNS), _result(row)] for row in rows]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return _TABLE.sub(lambda found: found[1] + table, page)


def _result(row):
    extent = ", ".join(f"`{each}`" for each in row.tests) or "all"
    found = ((word, getattr(row, word)) for word in _OUTCOMES)
    counts = ", ".join(f"{'?' if n is None else f'{n:,}'} {word}" for word, n in found)
    return f"{extent}: {counts} (at {row.commit or '?'}, {row.date}). {row.note}".rstrip()


def outcomes(report):
    """Return how many tests passed, failed and were skipped, by pytest's JUnit XML."""
    return Counter(map(_outcome, ElementTree.fromstring(report).iter("testcase")))


def _outcome(case):
    tags = {part.tag for part in case}
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def main(arguments):
    """Run tests, write their row and the table; return pytest's exit code.

    Without a row if the tests did not run to their end.
    """
    commit = _commit()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "tests.xml")
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return code
        count = outcomes(report.read_text(encoding="utf-8"))
    row = Row(
        releases={
            "Python": platform.python_version(),
            **{name: version(each) for name, each in _DISTRIBUTIONS.items()},
        },
        tests=[word for word in arguments if not word.startswith("-")],
        **{word: count[word] for word in _OUTCOMES},
        commit=commit,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    rows, page = ROOT / ROWS, ROOT / PAGE
    found = with_row(read_rows(rows.read_text(encoding="utf-8")), row)
    rows.write_text(rows_text(found), encoding="utf-8")
    page.write_text(with_table(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    return code


def _commit():
    """Return the commit that is checked out.

    Raises:
        SystemExit: something differs from it.
    """
    changed = _git("status", "--porcelain", "--", ".", f":!{ROWS}", f":!{PAGE}")
    if changed:
        sys.exit(f"a row says which commit was tested, so commit first:\n{changed}")
    return _git("rev-parse", "--short=7", "HEAD")


def _git(*words):
    ran = subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return ran.stdout.rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
