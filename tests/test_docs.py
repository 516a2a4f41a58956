"""What pages point at is there: files, headings, modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
# Results of campaigns are of the code of their time.
PRESENT = [page for page in PAGES if page.parent.name != "campaigns"]
SHELVES = [
    page
    for shelf in ("tutorials", "how-to", "reference", "explanation")
    for page in ROOT.glob(f"docs/{shelf}/*.md")
]
MODULES = [
    path.as_posix()
    for folder in ("placement_advisor", "tests", "sample_models")
    for path in (ROOT / folder).rglob("*.py")
]
# What the advisor writes for users, and what may lie in their folders.
NO_MODULES = {"how_to_split.py", "json.py", "model.py", "models/ranker.py", "pair.py", "train.py"}
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for name, anchor in _LINK.findall(prose(page)):
        target = page.parent / name if name else page
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_named_exist(page: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)\b", prose(page))) - NO_MODULES
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in MODULES)}


@pytest.mark.parametrize("page", SHELVES, ids=lambda page: page.name)
def test_a_page_begins_with_its_title_and_a_paragraph(page: Path) -> None:
    first, second = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert first.startswith("# ")
    assert re.match(r"[\w*`\[]", second)


def test_the_site_has_every_page_of_the_shelves() -> None:
    shown = re.findall(
        r"^ +- (?:\w+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    there = {page.relative_to(ROOT / "docs").as_posix() for page in SHELVES}
    assert sorted(shown) == sorted({"index.md"} | there)
