"""`advisor search`: the best placement of a graph file, and a bound. Needs no TensorFlow."""

from __future__ import annotations

import math
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import print_json

_DEVICES = 2


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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Search for the best placement of a graph file, with a bound that none can beat."""
    from placement_advisor.analysis.target_costs import read_target_hardware
    from placement_advisor.candidates.searched import search_step
    from placement_advisor.clock import Clock
    from placement_advisor.cost.links import assumed_cluster
    from placement_advisor.cost.roofline import roofline_by_place
    from placement_advisor.errors import AdvisorError
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import placed_ops
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
    if not placed_ops(graph):
        raise AdvisorError(f"{graph_file}: nothing in it can be placed")
    cluster = (
        assumed_cluster(devices or _DEVICES)
        if hardware is None
        else read_target_hardware(hardware, None).cluster
    )
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
    if as_json:
        from placement_advisor.files.contract import plain

        print_json(plain(result))
        return
    from placement_advisor.report.plans import render_search

    sys.stdout.write(render_search(result))
