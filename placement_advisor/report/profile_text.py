"""A read profile as text: where the time of devices went, what was copied, what to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.report.profile_tables import (
    activity_table,
    device_table,
    headline,
    remarks,
    route_table,
    tensor_table,
    wait_table,
)
from placement_advisor.report.tables import one_line, right_aligned

if TYPE_CHECKING:
    from placement_advisor.profile.totals import ReadProfile


def render_profile(read: ReadProfile) -> str:
    """Return the text."""
    profile = read.totals
    parts = [[f"{one_line(profile.path)}: {headline(profile)}"]]
    tables = [device_table(profile, per_step=False)]
    tables[0][0][0] = "in all (exposed)"
    if profile.step_ns:
        tables.insert(0, device_table(profile, per_step=True))
        tables[0][0][0] = "per step (exposed)"
    if profile.routes:
        tables.append(route_table(profile))
    if profile.tensors:
        tables.append(tensor_table(profile))
    if profile.waits:
        tables.append(wait_table(profile))
    parts += [right_aligned([[one_line(cell) for cell in row] for row in t]) for t in tables]
    rows = activity_table(profile)
    figures = right_aligned([row[:-1] for row in rows])
    parts.append([f"{line}  {row[-1]}" for line, row in zip(figures, rows, strict=True)])
    parts.append([one_line(remark) for remark in remarks(read)])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
