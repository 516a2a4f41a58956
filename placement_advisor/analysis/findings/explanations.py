"""The page of each finding: a file in `pages/`, which the documentation links to."""

from __future__ import annotations

import re
from importlib import resources

from placement_advisor.analysis.findings.rules import RULES
from placement_advisor.errors import AdvisorError

_LINK = re.compile(r"\[(PA\d+)\]\(PA\d+\.md\)")


def page(code: str) -> str:
    """Return the page of a finding as Markdown, other findings in it by their codes, not as links.

    The case of the code does not matter.

    Raises:
        AdvisorError: no such code.
    """
    known = [rule.CODE for rule in RULES]
    if code.upper() not in known:
        raise AdvisorError(
            f"no finding is called {code!r}; there are {', '.join(known)}",
            hint="`advisor explain` lists them with their names",
        )
    folder = resources.files("placement_advisor.analysis.findings") / "pages"
    return _LINK.sub(r"\1", (folder / f"{code.upper()}.md").read_text(encoding="utf-8"))
