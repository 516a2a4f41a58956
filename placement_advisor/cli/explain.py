"""`advisor explain`: what a finding or a problem of a check means. Needs no TensorFlow."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from placement_advisor.errors import AdvisorError


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="A finding or a check's problem, by code or name, such as PA101, batch-too-small "
            "or slower-step.",
        ),
    ] = None,
) -> None:
    """Tell what a code means, when it is found and what to do; without one, list all."""
    if code is None:
        _list()
        return
    text = _page(code)
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _list() -> None:
    from placement_advisor.analysis.findings.rules import RULES
    from placement_advisor.check.problems import EXPLANATIONS

    findings = {rule.code for rule in RULES}
    problems = {code: told for code, told in EXPLANATIONS.items() if code not in findings}
    width = max(map(len, problems))
    print("Findings of advisor analyze:")
    for rule in RULES:
        print(f"  {rule.code}  {rule.name}")
    print("\nProblems of advisor check, where findings count too:")
    for code, told in problems.items():
        print(f"  {code:<{width}}  {told.title}")


def _page(code: str) -> str:
    """Return the page of a code or a name, whatever its case.

    Raises:
        AdvisorError: nothing is called so.
    """
    from placement_advisor.analysis.findings import rules
    from placement_advisor.analysis.findings.rules import RULES
    from placement_advisor.check.problems import EXPLANATIONS, problem_page

    if code.upper() in {rule.code for rule in RULES}:
        return rules.finding_page(code)
    word = code.lower()
    # A problem of a check may be called as the finding that it is about.
    pages = [problem_page(word)] if word in EXPLANATIONS else []
    pages += [rules.finding_page(rule.code) for rule in RULES if word == rule.name]
    if pages:
        return "\n".join(pages)
    known = [*(rule.code for rule in RULES), *(name for name in EXPLANATIONS if name.islower())]
    raise AdvisorError(
        f"no finding and no problem of a check is called {code!r}; there are {', '.join(known)}",
        hint="`advisor explain` lists them with their names",
    )
