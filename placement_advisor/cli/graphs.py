"""`advisor trace`, `graph` and `search`: commands about a graph file.

All but `trace` work without TensorFlow.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.console import answer, progress, text_output
from placement_advisor.cli.options import AsJson, Quiet, complete_hardware, model_source, takes
from placement_advisor.defaults import DEVICES
from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import output_file
from placement_advisor.graph.exchange import GraphFormat

if TYPE_CHECKING:
    from placement_advisor.tf.load.model_source import ModelSource


@takes(source=model_source)
def trace(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Graph file to write. Default: <model>.graph.json.gz, here."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    source: ModelSource,
) -> None:
    """Trace a model into a graph file, and sum up what it holds."""
    from placement_advisor.analysis.tracing import trace_model
    from placement_advisor.graph.graph_summary import summarize
    from placement_advisor.report.steps import render_trace
    from placement_advisor.results.steps import Trace
    from placement_advisor.tf.load.model_source import source_kind

    path = Path(source.path)
    file = output or Path(f"{path.resolve().stem}.graph.json.gz")
    source_kind(path)
    with progress(quiet=quiet) as watcher, output_file(file, option="-o", read=path) as put:
        traced = trace_model(source, watcher)
        watcher.working(f"writing {file}", 0, 1)
        put(lambda path: traced.graph.save(path, traced.requested_device_of, traced.traced_as))
    said = {"model_path": source.path, "graph_file": str(file)}
    answer(
        summarize(traced.graph),
        lambda summary: Trace.of(traced, summary, **said),
        lambda summary: render_trace(traced, summary, **said),
        as_json=as_json,
    )


def graph(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `advisor trace` wrote.")],
    form: Annotated[
        GraphFormat | None,
        typer.Option(
            "--format",
            help="Print the ops for other programs (GraphML, DOT of Graphviz, node-link JSON), or "
            "the layers as a flowchart (Mermaid).",
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
            min=1,
            help="With mermaid: layers to this depth of their paths. Default: what fits 60 boxes.",
        ),
    ] = None,
) -> None:
    """Sum up a graph file, or write its ops or layers for other programs."""
    _check_options(form, output, placement, depth)
    if form is not None:
        _export(file, form, output, placement, depth)
    else:
        from placement_advisor.graph.graph_summary import summarize
        from placement_advisor.graph.op_graph import OpGraph
        from placement_advisor.report.steps import render_graph

        sys.stdout.write(render_graph(summarize(OpGraph.load(file)), graph_file=str(file)))


def _check_options(
    form: GraphFormat | None, output: Path | None, placement: Path | None, depth: int | None
) -> None:
    for option, given in (("-o", output), ("--placement", placement)):
        if given is not None and form is None:
            raise AdvisorError(
                f"{option} is for --format", hint=f"add --format {'|'.join(GraphFormat)}"
            )
    if depth is not None and form is not GraphFormat.MERMAID:
        raise AdvisorError(
            "--depth is for layers", hint=f"use it with --format {GraphFormat.MERMAID}"
        )


def _export(
    file: Path,
    form: GraphFormat,
    output: Path | None,
    placement: Path | None,
    depth: int | None,
) -> None:
    """Write a graph file in a format, into a file or on standard output."""
    from placement_advisor.graph.exchange import graph_text
    from placement_advisor.graph.op_graph import load_graph
    from placement_advisor.graph.placement import Placement

    with text_output(output, read=file) as write:
        graph, _, traced_as = load_graph(file)
        placed = None if placement is None else Placement.load(placement, graph, traced_as)
        device_of = None if placed is None else placed.device_of
        write(graph_text(graph, form, device_of, depth=depth))


def search(
    graph_file: Annotated[
        Path, typer.Argument(metavar="GRAPH", help="What `advisor trace` wrote.")
    ],
    devices: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="CPU workers to place on. Default: 2.", show_default=False
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC|FILE",
            autocompletion=complete_hardware,
            help="Devices like 2xV100-NVLink, or those of a cluster file (.toml).",
        ),
    ] = None,
    effort: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="UNITS",
            help="How long to search, in units of about a second of one core; equal effort and "
            "seed give equal answers. Default: 60, without limit if there is a time limit.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="Stop after so many seconds.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**20, help="Seed of the random search.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Search for the best placement of a graph file, with a bound that none can beat."""
    from placement_advisor.analysis.target_costs import read_target_hardware
    from placement_advisor.candidates.searched import search_step
    from placement_advisor.clock import Clock
    from placement_advisor.cost.links import assumed_cluster
    from placement_advisor.cost.roofline import roofline_by_place
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.report.plans import render_search
    from placement_advisor.results.plans import Search
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.units import NS_PER_S

    if devices is not None and hardware is not None:
        raise AdvisorError(
            "--devices and --hardware cannot be used together", hint="give one of them"
        )
    if effort is None:
        effort = Effort().units if time_limit is None else math.inf
    clock = Clock("search")
    graph = OpGraph.load(graph_file)
    if not graph.placed_ops:
        raise AdvisorError(f"{graph_file}: nothing in it can be placed")
    if hardware is None:
        cluster = assumed_cluster(devices or DEVICES)
    else:
        cluster = read_target_hardware(hardware, None).cluster
    costs = roofline_by_place(graph, cluster)
    allowed = Effort(units=effort, seed=seed, time_limit_s=time_limit)
    found = search_step(graph, costs, cluster, allowed)
    result = Search.of(
        found,
        allowed,
        graph,
        costs,
        cluster,
        graph_file=str(graph_file),
        machine=hardware or "CPU workers, one core each",
        seconds=clock.timings_ns()["search"] / NS_PER_S,
    )
    answer(result, lambda it: it, render_search, as_json=as_json)
