"""How much code the package is, and how dense.

A line counts as code if it holds a token that is neither comment nor docstring, be it an
attribute's. Takes the folder that holds the package, else this checkout; ``--under report check``
leaves out what lies in no such folder of the package, and how modules hang together.

``--limits FILE`` compares the figures with those of a TOML file and fails if one is larger there:
a ratchet, which `make lint` turns. ``--times FILE`` takes the times of tests from pytest's XML.
"""

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

import grimp
import networkx as nx

PACKAGE = "placement_advisor"
# They check JSON and TOML that anyone may have written; a folder stands for all that is in it.
READERS = (
    "analysis/resume.py",
    "check/lock_file.py",
    "files/",
    "graph/identities.py",
    "graph/op_graph.py",
    "graph/placement.py",
    "machine/calibration.py",
    "machine/cluster_file.py",
    "machine/gpu_facts.py",
    "machine/host_figures.py",
)
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_lines(tree):
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            texts.append(node.body[0])
        if isinstance(node, ast.Module | ast.ClassDef):
            texts += [after for before, after in pairwise(node.body) if documents(after, before)]
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}


def documents(text, attribute):
    """Return whether a statement is an attribute's docstring: a text right after it is assigned."""
    return (
        isinstance(attribute, ast.Assign | ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    )


def code_tokens(source, tree):
    """Return the tokens of a module without comments, docstrings and layout."""
    docstrings = docstring_lines(tree)
    return [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT and token.string and token.start[0] not in docstrings
    ]


def import_graph(folder, **options):
    """Return which module of the package imports which, be it for types alone."""
    sys.path.insert(0, str(folder))
    return grimp.build_graph(PACKAGE, cache_dir=None, **options)


def longest_chain(folder):
    """Return the longest chain of imports, by what runs when a module is loaded."""
    imports = import_graph(folder, exclude_type_checking_imports=True)
    return nx.dag_longest_path(
        nx.DiGraph(
            (module, used)
            for module in imports.modules
            for used in imports.find_modules_directly_imported_by(module)
            if used != PACKAGE and module != PACKAGE
        )
    )


def files(folders, pattern):
    """Return the files of such names that lie in any of the folders, each once."""
    return sorted({path for folder in folders for path in folder.rglob(pattern)})


def line_count(paths):
    """Return how many lines files have."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def import_lines(tree):
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def figures(folder, under):
    """Print the figures of the package, or of some folders of it; return those that have limits."""
    package = folder / PACKAGE
    parts = [package / name for name in under] or [package]
    modules = {}
    tokens, imports = 0, 0
    for path in files(parts, "*.py"):
        source = path.read_text()
        tree = ast.parse(source)
        code = code_tokens(source, tree)
        # A text of several lines stands on all of them.
        lines = {line for token in code for line in range(token.start[0], token.end[0] + 1)}
        modules[path.relative_to(package).as_posix()] = len(lines)
        tokens += len(code)
        imports += import_lines(tree)
    total = sum(modules.values())
    readers = [lines for where, lines in modules.items() if where.startswith(READERS)]
    found = {
        "modules": len(modules),
        "code_lines": total,
        "import_percent": round(100 * imports / total, 1),
        "tokens_per_code_line": round(tokens / total, 2),
        "modules_over_500_lines": sum(lines > 500 for lines in modules.values()),
    }
    told = {"readers of foreign JSON": f"{sum(readers):,} lines in {len(readers)} modules"}
    if not under:
        imported = import_graph(folder)
        importers = map(imported.find_modules_that_directly_import, imported.modules)
        found["modules_with_one_importer"] = sum(len(each) == 1 for each in importers)
        found["test_lines"] = line_count(files([folder / "tests"], "*.py"))
        chain = longest_chain(folder)
        found["longest_chain"] = len(chain)
        told["longest chain"] = f"{len(chain)} modules: {' > '.join(chain)}"
    shown = {name.replace("_", " "): f"{value:,}" for name, value in found.items()}
    for name, value in (shown | told).items():
        print(f"{name:<27}{value}")
    return found


def above(found, limits):
    allowed = tomllib.loads(limits.read_text())
    return [
        f"{name} is {value:,}, and at most {allowed[name]:,} in {limits}"
        for name, value in found.items()
        if name in allowed and value > allowed[name]
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--under", nargs="+", default=[], metavar="NAME", help="count these alone")
    parser.add_argument("--limits", type=Path, metavar="FILE", help="fail above its figures")
    parser.add_argument("--times", type=Path, metavar="FILE", help="XML with the times of tests")
    asked = parser.parse_args()
    if lacking := [name for name in asked.under if not (asked.folder / PACKAGE / name).is_dir()]:
        parser.error(f"{PACKAGE} has no folder {', '.join(lacking)}")
    found = figures(asked.folder, asked.under)
    if asked.times:
        suites = ElementTree.parse(asked.times).iter("testsuite")
        found["test_minutes"] = round(sum(float(suite.get("time", 0)) for suite in suites) / 60, 1)
        print(f"test minutes               {found['test_minutes']}")
    if asked.limits and (exceeded := above(found, asked.limits)):
        sys.exit("\n".join(exceeded))
