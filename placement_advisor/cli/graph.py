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
        _draw(file, png, placement, depth)
        return
    from placement_advisor.graph.graph_summary import summarize
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.report.trace_summary import render_graph

    sys.stdout.write(render_graph(summarize(OpGraph.load(file)), graph_file=str(file)))


def _draw(file: Path, png: Path, placement: Path | None, depth: int | None) -> None:
    """Draw the layers of a graph file, in the colours of a placement's devices if there is one."""
    from placement_advisor.files.output_file import output_file
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.report.pictures.layer_boxes import layer_boxes
    from placement_advisor.report.pictures.layer_picture import draw_layers

    with output_file(png, option="--png", read=file) as put:
        graph = OpGraph.load(file)
        placed = None if placement is None else Placement.load(placement, graph)
        boxes = layer_boxes(graph, file.name, depth=depth, placement=placed)
        put(lambda path: draw_layers(boxes, path))
