"""`advisor simulate`: one placement of a graph file, simulated. Needs no TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import print_json


def simulate(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="What `advisor trace` wrote.")],
    placement: Annotated[
        Path, typer.Option(help="Where its ops run: placements/*.json of `advisor analyze`.")
    ],
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC|FILE",
            help="Devices like 2xV100-NVLink, or those of a cluster file (.toml). Default: as many "
            "CPU workers as the placement has devices.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the schedule here, for chrome://tracing or Perfetto."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the simulation as JSON on stdout.")
    ] = False,
) -> None:
    """Simulate one step of a graph file under a placement, from assumed costs."""
    from placement_advisor.cli.simulate_file import simulate_file

    told = simulate_file(graph, placement, hardware, trace)
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.steps import Simulation

        print_json(plain(Simulation.of(told)))
        return
    from placement_advisor.report.steps import render_simulation

    sys.stdout.write(render_simulation(told))
