"""The notebook of the pages runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "tutorials" / "notebook.ipynb"
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
