"""What `advisor doctor --hosts` found, as text: a part for each host, one for what is between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.analysis.host_checks import (
    all_checks,
    between_checks,
    host_checks,
    next_step,
)
from placement_advisor.report.doctor_text import checks_lines, wrapped

if TYPE_CHECKING:
    from placement_advisor.analysis.examine_hosts import HostsExamined


def render_hosts(found: HostsExamined) -> str:
    """Return the text, which ends with what to do next."""
    lines = [f"advisor {__version__}"]
    for host in found.hosts:
        lines += ["", f"host {host.request.name}, {host.address}"]
        lines += checks_lines(host_checks(host, found.link))
    between = between_checks(found)
    if between:
        lines += ["", f"between hosts, --link {found.link}", *checks_lines(between)]
    blocked = any(check.blocks for check in all_checks(found))
    verdict = ["`advisor analyze` cannot work on these hosts"] if blocked else []
    last = wrapped(next_step(found), "next: ", " " * len("next: "))
    return "\n".join([*lines, "", *verdict, *last]) + "\n"
