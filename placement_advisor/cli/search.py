"""`advisor search`: the best placement of a graph file, and a bound. Needs no TensorFlow."""

from __future__ import annotations

import math
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated, Literal

import typer

from placement_advisor.cli.output_streams import print_json


def search(
    graph: Annotated[
        Path,
        typer.Argument(
            metavar="GRAPH", help="What `advisor trace` wrote, or JSON in the format of msr-fiddle."
        ),
    ],
    objective: Annotated[
        Literal["latency", "throughput"],
        typer.Option(help="The least time of one step, or of the fullest stage of a pipeline."),
    ] = "latency",
    contiguous: Annotated[
        bool | None,
        typer.Option(
            help="For throughput: whether each device holds one stage of a pipeline. Default: yes.",
            show_default=False,
        ),
    ] = None,
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
    from placement_advisor.cli.search_file import search_file
    from placement_advisor.errors import AdvisorError
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.search_result import Objective

    if devices is not None and hardware is not None:
        raise AdvisorError(
            "--devices and --hardware cannot be used together", hint="give one of them"
        )
    if objective == "latency" and contiguous is not None:
        raise AdvisorError(
            "--contiguous and --no-contiguous are about pipelines",
            hint="add --objective throughput",
        )
    if effort is None:
        effort = Effort().units if time_limit is None else math.inf
    searched = search_file(
        graph,
        objective=Objective(objective),
        contiguous=contiguous is not False,
        devices=devices,
        hardware=hardware,
        effort=Effort(units=effort, seed=seed, time_limit_s=time_limit),
    )
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.search import Search

        print_json(plain(Search.of(searched)))
        return
    from placement_advisor.report.search_text import render_search

    sys.stdout.write(render_search(searched))
