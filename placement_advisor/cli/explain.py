"""`advisor explain`: what a finding means. Needs no TensorFlow."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="Code of a finding, such as PA101.")
    ] = None,
) -> None:
    """Tell what a finding means, when it is found and what to do; without a code, list all."""
    from placement_advisor.analysis.findings.explanations import page
    from placement_advisor.analysis.findings.rules import RULES

    if code is None:
        for rule in RULES:
            print(f"{rule.CODE}  {rule.NAME}")
        return
    text = page(code)
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
