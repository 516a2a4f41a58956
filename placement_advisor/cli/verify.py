"""`advisor verify`: checks the proof of a lower bound. Needs no TensorFlow and no solver."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import print_json, say

REFUSED = 1


def verify(
    certificate: Annotated[
        Path,
        typer.Argument(metavar="CERTIFICATE", help="What `advisor analyze` wrote: bound.json."),
    ],
    graph: Annotated[
        Path,
        typer.Argument(metavar="GRAPH", help="The graph of that proof: graph.json.gz beside it."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what is shown as JSON on stdout.")
    ] = False,
) -> None:
    """Check the proof of a bound that no placement of a graph's ops can beat."""
    from placement_advisor.cli.verify_file import verify_file
    from placement_advisor.files.contract import plain
    from placement_advisor.report.search_text import render_certificate
    from placement_advisor.results.verification import Verification
    from placement_advisor.solvers.certificate import RefusedError

    try:
        told = verify_file(certificate, graph)
    except RefusedError as refused:
        say(f"refused: {certificate}: {refused}")
        raise typer.Exit(REFUSED) from None
    if as_json:
        print_json(plain(Verification.of(told)))
        return
    sys.stdout.write(render_certificate(told))
