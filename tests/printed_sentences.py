"""The sentences that the package can print, kept in `printed_sentences.txt` for readers.

It collects texts of at least four words from the modules whose texts reach a user, by the syntax
tree: what is neither a docstring nor a pattern. What a template fills in is a `{name}`. Write the
list anew with `python tests/printed_sentences.py`.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".txt")
PACKAGE = ROOT / "placement_advisor"
PLACES = ("analysis", "check", "cli", "errors.py", "machine", "measurement", "report", "tf")
FEWEST_WORDS = 4
# Patterns, pages of HTML, and programs that are written or run are no sentences.
_NO_TEXT = re.compile(
    r"\\[bdswn\d(]|\(\?|[;{]\s*\n|</|/>|^\s*<\w+|^\w+/\w+; |(?m:^import |\bimport \w+;)"
)
_WORD = re.compile(r"(?<![\w{.-])[A-Za-z']*[a-z]{2}[a-z'-]*(?=[\s,.:;?)]|$)")
_NAME = re.compile(r"[A-Za-z_]\w*")


def _hole(value):
    """Return a short name of what a template fills in."""
    if isinstance(value, ast.IfExp):
        return _hole(value.body)
    if isinstance(value, ast.Call) and value.args:
        return _hole(value.args[0])
    names = _NAME.findall(ast.unparse(value)) if not isinstance(value, ast.Constant) else []
    return "{" + (names[-1] if names else "text") + "}"


def _template(node):
    return "".join(
        part.value if isinstance(part, ast.Constant) else _hole(part.value)
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )


def _texts(node):
    """Yield the texts under a node in the order in which a reader of the module meets them."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring, of an attribute too
    if isinstance(node, ast.JoinedStr):
        yield _template(node)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _texts(part.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")):
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def sentences(module):
    """Return the texts of a module that have enough words to be read as sentences."""
    texts = dict.fromkeys(_texts(ast.parse(module.read_text(encoding="utf-8"))))
    return [
        " ".join(text.split())
        for text in texts
        if len(_WORD.findall(text)) >= FEWEST_WORDS and not _NO_TEXT.search(text)
    ]


@cache
def by_module():
    """Return the sentences by the path of their module in the package."""
    modules = (PACKAGE / each for each in PLACES)
    files = (file for each in modules for file in (sorted(each.rglob("*.py")) or [each]))
    found = {file.relative_to(PACKAGE).as_posix(): sentences(file) for file in files}
    return {module: texts for module, texts in found.items() if texts}


def listing():
    """Return the kept list, one sentence a line under its module."""
    groups = ("\n".join((f"# {module}", *texts)) for module, texts in by_module().items())
    return "\n\n".join(groups) + "\n"


if __name__ == "__main__":
    LIST.write_text(listing(), encoding="utf-8")
