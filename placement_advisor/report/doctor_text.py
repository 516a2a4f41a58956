"""What `advisor doctor` found, as text: a line per finding, what to do about it below."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from placement_advisor.machine.doctor.checks import check_all, next_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.machine.doctor.facts import Facts
    from placement_advisor.machine.doctor.finding import Check

_WIDTH = 100
_STATE, _NAME = 9, 14


def render_doctor(facts: Facts) -> str:
    """Return the text, which ends with what to type next."""
    checks = check_all(facts)
    lines = [f"advisor {facts.advisor_version}", "", *checks_lines(checks)]
    verdict = [] if not any(check.blocks for check in checks) else ["`advisor analyze` cannot work"]
    return "\n".join([*lines, "", *verdict, f"next: {next_command(facts, checks)}"]) + "\n"


def checks_lines(checks: Sequence[Check]) -> list[str]:
    """Return the lines of findings, which stand under one another."""
    name_width = max([_NAME, *(len(check.name) + 1 for check in checks)])
    indent = " " * (_STATE + name_width)
    lines = []
    for check in checks:
        head = f"{check.state.value:<{_STATE}}{check.name:<{name_width}}"
        lines += wrapped(check.finding, head, indent)
        if check.action is not None:
            lines += wrapped(check.action, f"{indent}→ ", f"{indent}  ")
    return lines


def wrapped(text: str, first: str, further: str) -> list[str]:
    """Return lines that fit, the first of which begins otherwise than further ones."""
    return wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
