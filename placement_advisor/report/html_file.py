"""``report.html`` is the tab Placement of one analysis in one file that needs no server.

It holds the scripts of the tab and, packed, the answers that TensorBoard would give them. A
browser loads no module from a file, so each script becomes a function that is called once and
returns its exports. The page's policy forbids the browser to load anything else or to run any
other script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from dataclasses import replace
from datetime import date
from importlib import resources
from typing import TYPE_CHECKING

from placement_advisor.files.output import DETAILS, LOG_FOLDER, OVERVIEW
from placement_advisor.report.document import one_line
from placement_advisor.report.tensorboard import tab_data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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


REPORT_FILE = "report.html"
_SCRIPTS = resources.files("placement_advisor.report.tensorboard") / "static"
# For a file of 2 MB, which every tracker of issues takes; scripts and style are 45 kB of it.
_MOST_PACKED_CHARS = 1_800_000
_LEFT_OUT = (
    "Left out, to keep this file small: `advisor view` shows it from the folder of the analysis."
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>{headline}</p><p>The rest is shown by scripts: open this file in a browser.</p>\
</noscript>
<script type="application/json" id="answers">{answers}</script>
<script>{script}</script>
</body>
</html>
"""


def report_html(folder: Path) -> str:
    """Return the file for the analysis that lies in a folder, whose content is not trusted.

    Raises:
        AdvisorError: it holds none, or a damaged one.
    """
    log = folder / LOG_FOLDER
    overview = tab_data.read_overview(log / OVERVIEW)
    packed = _packed(tab_data.compact(overview))
    answers = {
        "date": f"{date.fromtimestamp((log / OVERVIEW).stat().st_mtime):%Y-%m-%d}",
        "runs": [{"name": overview.name, "changed": "", "running": False}],
        "overview": packed,
        "details": _all_details(log / DETAILS, overview, _MOST_PACKED_CHARS - len(packed)),
    }
    files = {file.name: file.read_text(encoding="utf-8") for file in _SCRIPTS.iterdir()}
    script, style = bundle(files, "file.js"), files["style.css"]
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html.escape(one_line(f"{overview.name}: placement report")),
        headline=html.escape(one_line(overview.headline)),
        style=style,
        # All of it is ASCII, and nothing in it ends the element.
        answers=json.dumps(answers).replace("<", "\\u003c"),
        script=script,
    )


def _all_details(folder: Path, overview: tab_data.Overview, room: int) -> list[tuple[str, str]]:
    """Return names of candidates with their details, packed; that of the verdict has room first.

    ``room`` is how many characters they may take; what is never left out may take more.
    """
    shown = [each.name for each in overview.candidates if each.details]
    packed = []
    for name in sorted(shown, key=lambda name: name != overview.chosen):
        details = tab_data.read_details(folder / f"{name}.json", overview)
        whole = _packed(tab_data.compact(details))
        if len(whole) > room:
            said = (tab_data.Part(_LEFT_OUT),)
            details = replace(details, timelines=(), tensors=said, left_out=_LEFT_OUT)
            whole = _packed(tab_data.compact(details))
        packed.append((name, whole))
        room -= len(whole)
    return packed


def _packed(text: str) -> str:
    # Without a time: equal analyses have equal files.
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
