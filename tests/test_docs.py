import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import readme_page

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
# Results of campaigns are of the code of their time.
PRESENT = [page for page in PAGES if page.parent.name != "campaigns"]
MODULES = [
    path.as_posix()
    for folder in ("placement_advisor", "tests", "sample_models")
    for path in (ROOT / folder).rglob("*.py")
]
# What the advisor writes for users, and what may lie in their folders.
NO_MODULES = {"how_to_split.py", "json.py", "model.py", "models/ranker.py", "pair.py", "train.py"}
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")


def prose(page):
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for name, anchor in _LINK.findall(prose(page)):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_named_exist(page):
    named = set(re.findall(r"`([\w/]+\.py)\b", prose(page))) - NO_MODULES
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in MODULES)}


@pytest.mark.parametrize("page", [*ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_a_page_says_first_for_whom_it_is(page):
    first, second = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert first.startswith("# ")
    assert second.startswith("*For ")


PAGE = """Before.

<!-- advisor one -->

```
old
```

Between.

<!-- advisor two -v; from: second -->

```
old

too
```

```
advisor three
```
"""


def test_the_readme_shows_an_analysis_and_what_else_it_promises():
    shown = readme_page.commands(readme_page.PAGE.read_text(encoding="utf-8"))
    assert shown[0] == "advisor analyze sample_models/train_deepconn.py"
    last = [command.split(" && ")[-1] for command in shown]
    assert {command.split()[1] for command in last} >= {"analyze", "show", "diff", "trace"}


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


def code_cells():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_runs_from_the_first_cell_to_the_last(tmp_path):
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


def test_the_notebook_has_no_outputs_that_could_be_stale():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
