"""The scripts of the tab as one script, which a page can hold.

A browser loads no module from a file, so each becomes a function that is called once and returns
what the module exports. Left out: all of JavaScript's modules that the tab does not use. Imports
and exports stand at the beginning of a line, in braces or before what they declare, and no module
imports itself by way of others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES = r"\{\s*\w+(?:,\s*\w+)*,?\s*\}"
_IMPORT = re.compile(rf"^import ({_NAMES}) from '\./(\w+\.js)';$", re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^(?:import|export)\b.*|\bimport(?:\.meta\b|\()", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """Return a script that does what the module ``entry`` does, of modules by their file names.

    Raises:
        ValueError: a module imports or exports in a way that is not known here.
    """
    order: dict[str, None] = {}

    def add(name: str) -> None:
        for _, imported in _IMPORT.findall(modules[name]):
            add(imported)
        order.setdefault(name)

    add(entry)
    parts = [_part(name, modules[name]) for name in order]
    return "'use strict';\nconst modules = {};\n" + "".join(parts)


def _part(name: str, text: str) -> str:
    exported = ", ".join(match[1] for match in _EXPORT.findall(text))
    inner = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = modules['\2'];", text))
    if left := _LEFT.search(inner):
        raise ValueError(f"{name}: cannot be bundled: {left[0]}")
    return f"modules['{name}'] = (() => {{\n{inner}return {{ {exported} }};\n}})();\n"
