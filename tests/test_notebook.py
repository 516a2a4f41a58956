"""The notebook of the pages runs, and a bar shows progress in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from placement_advisor.analysis.progress import TimeAhead
from placement_advisor.report.progress import NotebookProgressBar, notebook_display

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
# What follows the cells: they have made all that the page promises.
CHECKS = """
assert str(report.verdict) in ("stay-single", "split", "cannot-tell", "cannot-fit"), report.verdict
assert report.candidates[0]["candidate"] == "single"
assert len(repr(report)) < 2_000 and len(repr(report.analysis)) < 2_000
html = report._repr_html_()
assert "<table>" in html and "data:image/png;base64," in html
assert axes.get_xlabel() and Path("towers.png").stat().st_size > 10_000
assert Path("advisor-out/notebook.model/pair.py").exists()
"""


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_runs_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    code = "\n".join(["from pathlib import Path", *code_cells(), CHECKS])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]


def test_the_notebook_has_no_outputs_that_could_be_stale() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


class Shown:
    """What stands in a notebook by now."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, line: object, *, display_id: bool) -> Shown:
        assert display_id
        self.update(line)
        return self

    def update(self, line: object) -> None:
        assert "<progress" in line._repr_html_()  # type: ignore[attr-defined]
        self.lines.append(repr(line))


def test_a_bar_grows_and_ends_full(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    shown = Shown()
    bar = NotebookProgressBar(shown.display)
    bar.expect(TimeAhead(stage_s=20.0, later_s=20.0))
    now[0] += 10.0
    bar.working("running", 1, 4, "towers")
    bar.working("too soon to be drawn", 1, 4)
    now[0] += 20.0
    bar.end("done")
    assert shown.lines[0] == "  0% starting"
    assert shown.lines[1].startswith(" 25% running 2/4, towers, about 30 s left")
    assert shown.lines[2:] == ["100% done after 30 s"]


def test_outside_of_a_notebook_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebook_display() is None

    class Terminal:
        @staticmethod
        def get_ipython() -> object:
            return object()

    monkeypatch.setitem(sys.modules, "IPython", Terminal)
    assert notebook_display() is None
