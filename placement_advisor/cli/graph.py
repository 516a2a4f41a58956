"""`advisor graph`: what a graph file holds, as text or as a picture. Needs no TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.errors import AdvisorError


def graph(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `advisor trace` wrote.")],
    png: Annotated[
        Path | None, typer.Option(help="Draw the layers into this file, and print nothing.")
    ] = None,
    placement: Annotated[
        Path | None,
        typer.Option(help="Colour the layers by device: placements/*.json of `advisor analyze`."),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draw layers to this depth of their paths. Default: what fits 60 boxes."
        ),
    ] = None,
) -> None:
    """Sum up a graph file, or draw its layers."""
    if png is None and (placement or depth):
        option = "--placement" if placement else "--depth"
        raise AdvisorError(f"{option} is for a picture", hint="add --png OUT.png")
    if png is not None:
        from placement_advisor import pipeline

        pipeline.draw_graph(file, png, placement, depth)
        return
    from placement_advisor.graph import OpGraph
    from placement_advisor.graph_summary import summarize
    from placement_advisor.report.trace_summary import render_graph

    sys.stdout.write(render_graph(summarize(OpGraph.load(file)), graph_file=str(file)))
