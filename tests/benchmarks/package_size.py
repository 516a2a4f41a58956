"""How much code the package is, and how dense.

Prints modules, code lines (a line counts if it holds a token that is neither comment nor docstring,
be it an attribute's), the largest module and function, tokens per code line, docstrings per public
name, lines of JSON schemas, code lines of what reads foreign JSON, and the longest chain of
imports. Takes the folder that holds the package, else this checkout; ``--under report check``
leaves out what lies in no such folder of the package, and the chain.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import grimp
import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PACKAGE = "placement_advisor"
# They check JSON and TOML that anyone may have written; a folder stands for all that is in it.
READERS = (
    "analysis/recording.py",
    "check/project_files.py",
    "files/",
    "graph/graph_file.py",
    "graph/identities.py",
    "graph/placement.py",
    "machine/calibration.py",
    "machine/cluster_file.py",
    "machine/gpu_facts.py",
    "machine/host_figures.py",
)
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Named: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Documented: TypeAlias = ast.Module | Named


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of all docstrings of a module, those of attributes included."""
    texts: list[ast.stmt] = []
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            texts.append(node.body[0])
        if isinstance(node, ast.Module | ast.ClassDef):
            texts += [after for before, after in pairwise(node.body) if documents(after, before)]
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}


def documents(text: ast.stmt, attribute: ast.stmt) -> bool:
    """Return whether a statement is an attribute's docstring: a text right after it is assigned."""
    return (
        isinstance(attribute, ast.Assign | ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    )


def code_tokens(source: str, tree: ast.Module) -> list[tokenize.TokenInfo]:
    """Return the tokens of a module without comments, docstrings and layout."""
    docstrings = docstring_lines(tree)
    return [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT and token.string and token.start[0] not in docstrings
    ]


def lines_of(tokens: list[tokenize.TokenInfo]) -> set[int]:
    """Return the lines that tokens stand on; a text of several lines stands on all of them."""
    return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}


def public(tree: ast.Module) -> list[Documented]:
    """Return the module and its public functions, classes and their public methods."""
    found: list[Documented] = [tree]
    scopes: list[Documented] = [tree]
    while scopes:
        for node in scopes.pop().body:
            if isinstance(node, Named) and not node.name.startswith("_"):
                found.append(node)
                scopes.extend([node] if isinstance(node, ast.ClassDef) else [])
    return found


def longest_chain(folder: Path) -> list[str]:
    """Return the modules of the longest chain of imports that run when a module is loaded."""
    sys.path.insert(0, str(folder))
    imports = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    graph: nx.DiGraph[str] = nx.DiGraph(
        (module, used)
        for module in imports.modules
        for used in imports.find_modules_directly_imported_by(module)
        if used != PACKAGE and module != PACKAGE
    )
    chain: list[str] = nx.dag_longest_path(graph)
    return chain


def files(folders: Iterable[Path], pattern: str) -> list[Path]:
    """Return the files of such names that lie in any of the folders, each once."""
    return sorted({path for folder in folders for path in folder.rglob(pattern)})


def main(folder: Path, under: Sequence[str]) -> None:
    """Print the figures of the package in a folder, or of some folders of that package."""
    package = folder / PACKAGE
    parts = [package / name for name in under] or [package]
    modules: dict[str, int] = {}
    functions: dict[str, int] = {}
    tokens, names, documented = 0, 0, 0
    for path in files(parts, "*.py"):
        source = path.read_text()
        tree = ast.parse(source)
        code = code_tokens(source, tree)
        lines = lines_of(code)
        where = path.relative_to(package).as_posix()
        modules[where] = len(lines)
        tokens += len(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                extent = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                functions[f"{where}:{node.lineno} {node.name}"] = len(lines & set(extent))
        named = public(tree)
        names += len(named)
        documented += sum(ast.get_docstring(node) is not None for node in named)
    total = sum(modules.values())
    schema_lines = sum(len(path.read_text().splitlines()) for path in files(parts, "*.schema.json"))
    readers = [lines for where, lines in modules.items() if where.startswith(READERS)]
    largest_module = max(modules, key=modules.__getitem__)
    largest_function = max(functions, key=functions.__getitem__)
    print(f"modules                    {len(modules):,}")
    print(f"code lines                 {total:,}")
    print(f"tokens per code line       {tokens / total:.2f}")
    print(f"functions                  {len(functions):,}")
    print(f"largest module             {modules[largest_module]} lines, {largest_module}")
    print(f"largest function           {functions[largest_function]} lines, {largest_function}")
    print(f"docstrings per public name {documented / names:.3f} ({documented:,} of {names:,})")
    print(f"lines of JSON schemas      {schema_lines:,}")
    print(f"readers of foreign JSON    {sum(readers):,} lines in {len(readers)} modules")
    if not under:
        chain = longest_chain(folder)
        print(f"longest chain of imports   {len(chain)} modules: {' > '.join(chain)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--under", nargs="+", default=[], metavar="NAME", help="count these alone")
    asked = parser.parse_args()
    if lacking := [name for name in asked.under if not (asked.folder / PACKAGE / name).is_dir()]:
        parser.error(f"{PACKAGE} has no folder {', '.join(lacking)}")
    main(asked.folder, asked.under)
