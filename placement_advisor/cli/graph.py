"""`advisor graph`: a graph file as text, as a picture or for other programs. No TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.exchange import GraphFormat


def graph(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `advisor trace` wrote.")],
    png: Annotated[
        Path | None, typer.Option(help="Draw the layers into this file, and print nothing.")
    ] = None,
    form: Annotated[
        GraphFormat | None,
        typer.Option(
            "--format",
            help="Print the ops for other programs: GraphML, DOT of Graphviz, or node-link JSON.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write --format into this file, and print nothing."),
    ] = None,
    placement: Annotated[
        Path | None,
        typer.Option(
            help="Show the device of each layer or op: placements/*.json of `advisor analyze`."
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draw layers to this depth of their paths. Default: what fits 60 boxes."
        ),
    ] = None,
) -> None:
    """Sum up a graph file, draw its layers, or write its ops for other programs."""
    _check_options(png, form, output, placement, depth)
    if png is not None:
        _draw(file, png, placement, depth)
    elif form is not None:
        _export(file, form, output, placement)
    else:
        from placement_advisor.graph.graph_summary import summarize
        from placement_advisor.graph.op_graph import OpGraph
        from placement_advisor.report.steps import render_graph

        sys.stdout.write(render_graph(summarize(OpGraph.load(file)), graph_file=str(file)))


def _check_options(
    png: Path | None,
    form: GraphFormat | None,
    output: Path | None,
    placement: Path | None,
    depth: int | None,
) -> None:
    formats = "|".join(GraphFormat)
    if png is not None and form is not None:
        raise AdvisorError("--png and --format are two outputs", hint="leave one out")
    if output is not None and form is None:
        raise AdvisorError("-o is for --format", hint=f"add --format {formats}, or see --png")
    if depth is not None and png is None:
        raise AdvisorError("--depth is for a picture", hint="add --png OUT.png")
    if placement is not None and png is None and form is None:
        raise AdvisorError(
            "--placement is for a picture or for --format",
            hint=f"add --png OUT.png, or --format {formats}",
        )


def _draw(file: Path, png: Path, placement: Path | None, depth: int | None) -> None:
    """Draw the layers of a graph file, in the colours of a placement's devices if there is one."""
    from placement_advisor.files.output import output_file
    from placement_advisor.graph.op_graph import load_graph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.report.pictures.canvas import save
    from placement_advisor.report.pictures.layer_picture import draw_layers, layer_boxes

    with output_file(png, option="--png", read=file) as put:
        graph, _, traced_as = load_graph(file)
        placed = None if placement is None else Placement.load(placement, graph, traced_as)
        boxes = layer_boxes(graph, file.name, depth=depth, placement=placed)
        put(lambda path: save(draw_layers(boxes), path))


def _export(file: Path, form: GraphFormat, output: Path | None, placement: Path | None) -> None:
    """Write the ops of a graph file in a format, into a file or on standard output."""
    from placement_advisor.files.output import output_file

    if output is None:
        sys.stdout.write(_text(file, form, placement))
        return
    with output_file(output, option="-o", read=file) as put:
        text = _text(file, form, placement)
        put(lambda path: _write(path, text))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _text(file: Path, form: GraphFormat, placement: Path | None) -> str:
    from placement_advisor.graph.exchange import graph_text
    from placement_advisor.graph.op_graph import load_graph
    from placement_advisor.graph.placement import Placement

    graph, _, traced_as = load_graph(file)
    placed = None if placement is None else Placement.load(placement, graph, traced_as)
    return graph_text(graph, form, None if placed is None else placed.device_of)
