"""A read profile as text: where the time of devices went, what was copied, what to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.analysis.tables import one_line, right_aligned
from placement_advisor.report.profile.profile_tables import ACTIVITIES, headline, remarks, tables

if TYPE_CHECKING:
    from placement_advisor.profile.totals import ReadProfile


def render_profile(read: ReadProfile) -> str:
    """Return the text."""
    profile = read.totals
    parts = [[f"{one_line(profile.path)}: {headline(read)}"]]
    if read.which is not None:
        parts[0].append(one_line(read.which))
    for title, table in tables(profile):
        rows = [[one_line(cell) for cell in row] for row in table]
        if title == ACTIVITIES:
            figures = right_aligned([row[:-1] for row in rows])
            parts.append([f"{line}  {row[-1]}" for line, row in zip(figures, rows, strict=True)])
        else:
            parts.append(right_aligned(rows))
    parts.append([one_line(remark) for remark in remarks(read)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
