import json
import re
import shlex
import sys
from pathlib import Path

import prose
import pytest
import readme_page
import typer
from program_runs import run_program

from placement_advisor.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
# Results of campaigns are of the code of their time.
PRESENT = [page for page in PAGES if page.parent.name != "campaigns"]
SHELVES = [page for shelf in prose.SHELVES for page in ROOT.glob(f"docs/{shelf}/*.md")]
_CODE = ("placement_advisor", "tests", "sample_models")
MODULES = [path.as_posix() for each in _CODE for path in (ROOT / each).rglob("*.py")]
# What the advisor writes for users, and what may lie in their folders.
NO_MODULES = {"how_to_split.py", "json.py", "model.py", "models/ranker.py", "pair.py", "train.py"}
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")


def without_code(page):
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    for name, anchor in _LINK.findall(without_code(page)):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_named_exist(page):
    named = set(re.findall(r"`([\w/]+\.py)\b", without_code(page))) - NO_MODULES
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in MODULES)}


def test_files_that_the_package_names_exist():
    code = "\n".join(path.read_text() for path in ROOT.glob("placement_advisor/**/*.py"))
    named = set(re.findall(r"\b(?:tests|docs|sample_models)/[\w/-]+\.\w+", code))
    assert named
    assert not {name for name in named if not (ROOT / name).exists()}


@pytest.mark.parametrize("page", SHELVES, ids=lambda page: page.name)
def test_a_page_begins_with_its_title_and_a_paragraph(page):
    first, second = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert first.startswith("# ")
    assert re.match(r"[\w*`\[]", second)


def test_the_site_has_every_page_of_the_shelves():
    config = (ROOT / "mkdocs.yml").read_text()
    shown = re.findall(r"^ +- (?:\w+: )?(\S+\.md)$", config, re.MULTILINE)
    there = {page.relative_to(ROOT / "docs").as_posix() for page in SHELVES}
    assert sorted(shown) == sorted({"index.md"} | there)


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


def code_cells():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_runs_from_the_first_cell_to_the_last(tmp_path):
    code = "\n".join(["from pathlib import Path", *code_cells(), CHECKS])
    env = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = run_program(sys.executable, "-c", code, cwd=tmp_path, env=env, timeout=600)
    assert done.returncode == 0, done.stderr[-3_000:]


def test_the_notebook_has_no_outputs_that_could_be_stale():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


def test_the_pages_show_an_analysis_and_what_else_they_promise():
    pages = [page.read_text(encoding="utf-8") for page in readme_page.PAGES]
    shown = [command for page in pages for command in readme_page.commands(page)]
    assert shown[0] == "advisor analyze sample_models/train_deepconn.py"
    last = [command.split(" && ")[-1] for command in shown]
    assert {command.split()[1] for command in last} >= {"analyze", "run", "show", "diff", "trace"}


def test_every_output_of_the_readme_is_of_a_command_that_it_says_to_type():
    page = readme_page.README.read_text(encoding="utf-8")
    typed = readme_page.typed(page).splitlines()
    assert typed[0].startswith("make demo ")
    assert set(readme_page.commands(page)) <= set(typed)


def test_the_readme_has_at_most_1200_words_and_says_at_once_that_no_gpu_was_used():
    page = readme_page.README.read_text(encoding="utf-8")
    assert len(page.split()) <= 1_200
    assert "No GPU was used" in page.split("\n## ")[0]


@pytest.mark.parametrize("page", readme_page.PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_have_only_options_that_the_advisor_knows(page):
    commands = typer.main.get_command(app).commands
    spans = re.findall(r"`advisor ([^`\n]+)`", page.read_text(encoding="utf-8"))
    assert spans
    for words in map(shlex.split, spans):
        if words[0] == "--help":
            continue
        known = {option for each in commands[words[0]].params for option in each.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own if word.startswith("-")} <= known, words
