"""A read profile as Markdown, for an issue or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.markdown_syntax import bullets, escape, section, table
from placement_advisor.report.profile_tables import (
    activity_table,
    device_table,
    headline,
    remarks,
    route_table,
    tensor_table,
    wait_table,
)

if TYPE_CHECKING:
    from placement_advisor.profile.totals import ReadProfile
    from placement_advisor.report.profile_tables import Table


def profile_as_markdown(read: ReadProfile) -> str:
    """Return the document."""
    profile = read.totals
    sections = [
        f"# {escape(profile.path)}\n\n{escape(headline(profile))}.",
        section("Per step", _table(device_table(profile, per_step=True)))
        if profile.step_ns
        else "",
        section("In all", _table(device_table(profile, per_step=False))),
        section("Copies", _table(route_table(profile))) if profile.routes else "",
        section("Tensors", _table(tensor_table(profile))) if profile.tensors else "",
        section("Waiting", _table(wait_table(profile))) if profile.waits else "",
        section("Activities", _table(activity_table(profile))),
        section("To know", bullets(remarks(read))),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _table(rows: Table) -> str:
    head, *body = ([escape(cell) for cell in row] for row in rows)
    return table(head, body)
