"""The words of README, of the shelves of docs/ and of the pages of findings, for `make lint`.

Of each page it looks at sentences in paragraphs and lists, not at code, tables and headings: their
length, with an allowance for each page, passives in a row, and words and constructions that nobody
would say aloud.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHELVES = ("tutorials", "how-to", "reference", "explanation")
LONG_WORDS = 25
# A sentence may earn its length, one in ten of a page; none may have as many as the second number.
LONG_SHARE, MOST_WORDS = 0.1, 40
# So many passives in one sentence are a chain.
PASSIVES = 2
BANNED = {
    r"\banew\b": "again, or newly",
    r"\bbeside\b": "next to, or besides",
    r"\bcomes? about\b": "say what makes it",
    r"\b(?:in order to)\b": "to",
    r"\b(?:is|are|was|were|be) told\b": "say who says it",
    r"\bstands? (?:on|in its place)\b": "is on, or replaces",
    r"\bthat which\b": "what",
    r"\b(?:thereof|herein|whereupon|wherein)\b": "a common word",
    r"\b(?:utili[sz]e|leverage)": "use",
    r"\b(?:whoever|whosoever)\b": "you, or anyone who",
    r"^What [^?]*\.$": "begin with the subject",
    r"^(?:That|Whether) [^?]* is\b[^?]*\.$": "begin with the subject",
}
_LEFT_OUT = re.compile(r"(?ms)^```.*?^```|<!--.*?-->|^\|.*?$|^#.*?$|^!\[.*?\)$")
_SPAN = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
_END = re.compile(r"(?<=[.?!])[*_)]*\s+(?=[A-Z*`\[(\d])")
_PASSIVE = re.compile(
    r"\b(?:is|are|was|were|be|been|being)(?: \w+ly| not| never| also)? "
    r"(?:\w+ed|built|done|drawn|found|given|held|known|kept|made|read|run|seen|sent|shown|taken|"
    r"thrown|timed|written)\b"
)


def sentences(page):
    """Return the sentences of a page, a span of code as one word and a link as its text."""
    text = _LINK.sub(r"\1", _SPAN.sub("Code", _LEFT_OUT.sub("\n\n", page)))
    blocks = re.split(r"\n\s*\n", _ITEM.sub("\n\n", text))
    parts = (part for block in blocks for part in _END.split(" ".join(block.split())))
    return [found for part in parts if (found := part.strip("*_ "))]


def problems(page):
    """Yield what a page must not have, each with its sentence."""
    found = sentences(page)
    long = [each for each in found if len(each.split()) > LONG_WORDS]
    for each in long if len(long) > max(1, LONG_SHARE * len(found)) else ():
        yield f"{len(each.split())} words: {each}"
    for each in found:
        if len(each.split()) >= MOST_WORDS:
            yield f"{len(each.split())} words, {MOST_WORDS} at any rate are too many: {each}"
        if len(_PASSIVE.findall(each)) >= PASSIVES:
            yield f"passives in a row: {each}"
        for pattern, better in BANNED.items():
            if banned := re.search(pattern, each, re.IGNORECASE):
                yield f"{banned[0]!r} ({better}): {each}"


def pages():
    """Return the pages that are held."""
    shelves = [page for shelf in SHELVES for page in ROOT.glob(f"docs/{shelf}/*.md")]
    findings = ROOT.glob("placement_advisor/**/pages/*.md")
    return [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted(shelves), *sorted(findings)]


def main():
    """Print problems by page; return how a linter exits."""
    found = [
        f"{page.relative_to(ROOT)}: {problem}"
        for page in pages()
        for problem in problems(page.read_text(encoding="utf-8"))
    ]
    print(*found, f"{len(found)} problems in {len(pages())} pages", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
