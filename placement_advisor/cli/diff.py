"""`advisor diff`: what changed between two analyses."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.output_streams import harmless, print_json

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph

_HELP = "What `advisor analyze` wrote, or a folder of several: the newest of them."


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help=_HELP)],
    after: Annotated[Path, typer.Argument(metavar="B", help="The same, of later.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the difference as JSON on stdout.")
    ] = False,
) -> None:
    """Say what changed between two analyses, and why the verdict did."""
    from placement_advisor.files.contract import plain
    from placement_advisor.report.find_analysis import find_analysis, read_analysis
    from placement_advisor.report.screen import render_difference
    from placement_advisor.results.analysis import ANALYSIS
    from placement_advisor.results.difference import Difference, difference

    folders = find_analysis(before), find_analysis(after)
    ours, theirs = (read_analysis(folder / ANALYSIS) for folder in folders)
    differs = ours.model.graph_fingerprint != theirs.model.graph_fingerprint
    found = difference(ours, theirs, _graphs(*folders) if differs else None)
    if as_json:
        print_json(plain(Difference.of(found)))
        return
    sys.stdout.write(harmless(render_difference(found)))


def _graphs(before: Path, after: Path) -> tuple[OpGraph, OpGraph] | None:
    """Return the graphs of two analyses; None unless both are there.

    Raises:
        AdvisorError: one of them cannot be read, or is none.
    """
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.results.analysis import GRAPH

    files = before / GRAPH, after / GRAPH
    if not all(file.is_file() for file in files):
        return None
    return OpGraph.load(files[0]), OpGraph.load(files[1])
