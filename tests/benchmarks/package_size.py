"""How much code the package is, and how dense.

Prints modules, code lines (a line counts if it holds a token that is neither comment nor
docstring), the largest module and function, tokens per code line, docstrings per public name and
the longest chain of imports. Takes the folder that holds the package, else this checkout.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import TypeAlias

import grimp
import networkx as nx

PACKAGE = "placement_advisor"
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Named: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Documented: TypeAlias = ast.Module | Named


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of all docstrings of a module."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


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


def main(folder: Path) -> None:
    """Print the figures of the package in a folder."""
    modules: dict[str, int] = {}
    functions: dict[str, int] = {}
    tokens, names, documented = 0, 0, 0
    for path in sorted((folder / PACKAGE).rglob("*.py")):
        source = path.read_text()
        tree = ast.parse(source)
        code = code_tokens(source, tree)
        lines = lines_of(code)
        where = str(path.relative_to(folder))
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
    chain = longest_chain(folder)
    largest_module = max(modules, key=modules.__getitem__)
    largest_function = max(functions, key=functions.__getitem__)
    print(f"modules                    {len(modules):,}")
    print(f"code lines                 {total:,}")
    print(f"tokens per code line       {tokens / total:.2f}")
    print(f"functions                  {len(functions):,}")
    print(f"largest module             {modules[largest_module]} lines, {largest_module}")
    print(f"largest function           {functions[largest_function]} lines, {largest_function}")
    print(f"docstrings per public name {documented / names:.3f} ({documented:,} of {names:,})")
    print(f"longest chain of imports   {len(chain)} modules: {' > '.join(chain)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[2])
