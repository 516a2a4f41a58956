"""What docs/how-to/networkx.md shows is what its snippets print."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "networkx.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```\n", PAGE, re.DOTALL)


def test_every_snippet_prints_what_stands_below_it() -> None:
    assert len(SNIPPETS) == PAGE.count("```python") == 4
    names: dict[str, Any] = {}
    for code, shown in SNIPPETS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == shown
