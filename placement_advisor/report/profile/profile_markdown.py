"""A read profile as Markdown, for an issue or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.analysis.markdown_syntax import bullets, escape, section, table
from placement_advisor.report.profile.profile_tables import headline, remarks, tables

if TYPE_CHECKING:
    from placement_advisor.profile.totals import ReadProfile
    from placement_advisor.report.profile.profile_tables import Table


def profile_as_markdown(read: ReadProfile) -> str:
    """Return the document."""
    profile = read.totals
    sections = [
        f"# {escape(profile.path)}\n\n{escape(headline(read))}.",
        *([] if read.which is None else [f"{escape(read.which)}."]),
        *(section(title, _table(rows)) for title, rows in tables(profile)),
        section("To know", bullets(remarks(read))),
    ]
    return "\n\n".join(sections) + "\n"


def _table(rows: Table) -> str:
    head, *body = ([escape(cell) for cell in row] for row in rows)
    return table(head, body)
