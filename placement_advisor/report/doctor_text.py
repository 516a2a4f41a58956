"""What `advisor doctor` found of this machine or of hosts, as text: a line a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.machine import doctor_checks
from placement_advisor.report.document import Facts, Part, Section, as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.doctor_hosts import HostsExamined
    from placement_advisor.machine.machine_facts import Facts as MachineFacts

WIDTH = 100
_STATE, _NAME = 9, 14


def render_doctor(facts: MachineFacts) -> str:
    """Return the text, which ends with what to type next."""
    checks = doctor_checks.check_all(facts)
    verdict = "`advisor analyze` cannot work" if any(check.blocks for check in checks) else ""
    last = Section("", [verdict, f"next: {doctor_checks.next_command(facts, checks)}"])
    return as_text([f"advisor {facts.advisor_version}", check_facts(checks), last], WIDTH)


def render_hosts(found: HostsExamined) -> str:
    """Return the text: a part for each host, one for what is between, what to do next."""
    from placement_advisor.analysis import doctor_hosts

    parts: list[Part] = [f"advisor {__version__}"]
    for host in found.hosts:
        checks = check_facts([*doctor_hosts.host_checks(host, found.link)])
        parts.append(Section("", [f"host {host.request.name}, {host.address}", checks]))
    if between := [*doctor_hosts.between_checks(found)]:
        title = f"between hosts, --link {found.link}"
        parts.append(Section("", [title, check_facts(between)]))
    blocked = any(check.blocks for check in doctor_hosts.all_checks(found))
    verdict = "`advisor analyze` cannot work on these hosts" if blocked else ""
    next_step = Facts([("next: ", doctor_hosts.next_step(found))], label_width=6)
    parts.append(Section("", [verdict, next_step]))
    return as_text(parts, WIDTH)


def check_facts(checks: Sequence[doctor_checks.Check]) -> Facts:
    """Return findings, which stand under one another, and what to do below each."""
    name_width = max([_NAME, *(len(check.name) + 1 for check in checks)])
    width = _STATE + name_width
    rows = []
    for check in checks:
        rows.append((f"{check.state.value:<{_STATE}}{check.name}", check.finding))
        if check.action is not None:
            rows.append((f"{'':<{width}}→ ", check.action))
    return Facts(rows, label_width=width)
