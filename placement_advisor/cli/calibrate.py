"""`advisor calibrate`: what the devices here take for copies, for starting a step, for waiting."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.analyze import TestbedChoice  # noqa: TC001 - typer reads it
from placement_advisor.cli.host_options import (
    HostFile,
    HostLink,
    Hosts,
    Launch,
    Secret,
    hosts_asked,
    refuse_beside_hosts,
)
from placement_advisor.cli.output_streams import print_json, say
from placement_advisor.cli.progress import progress
from placement_advisor.cli.source_options import OpenPorts, Quiet  # noqa: TC001 - typer reads it
from placement_advisor.defaults import DEVICES
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster


def calibrate(
    devices: Annotated[
        int | None,
        typer.Option(min=2, help=f"How many devices to measure. Default: {DEVICES}."),
    ] = None,
    testbed: Annotated[
        TestbedChoice | None,
        typer.Option(help="What to measure. Default: GPUs if there are enough, else workers."),
    ] = None,
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launch: Launch = None,
    link: HostLink = None,
    secret: Secret = None,
    open_ports: OpenPorts = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.toml", help="Write a cluster file for --hardware, too."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON on stdout.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Measure copies and overheads of the devices here anew, and keep them for `analyze`."""
    from placement_advisor.analysis.calibrate import calibrate as measured
    from placement_advisor.files.output import holding, output_file
    from placement_advisor.machine.testbed_plan import TestbedKind

    asked = hosts_asked(hosts, hostfile, launch, link, secret)
    refuse_beside_hosts(
        asked,
        {
            "--devices": devices is not None,
            "--testbed": testbed is not None,
            "--open-ports": open_ports,
        },
    )
    kind = None if testbed is None else TestbedKind(testbed.value)
    if output is not None and output.suffix != ".toml":
        raise AdvisorError(f"-o {output}: not the name of a cluster file", hint="end it in .toml")
    with ExitStack() as stack:
        watcher = stack.enter_context(progress(quiet=quiet))
        put = stack.enter_context(output_file(output, option="-o")) if output else None
        summary = measured(kind, devices or DEVICES, asked, output, open_ports, watcher)
        if put is not None:
            put(holding(_cluster_text(summary.cluster)))
    if not quiet:
        for warning in summary.warnings:
            say(f"warning: {warning}")
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.machine import Calibration

        print_json(plain(Calibration.of(summary)))
        return
    from placement_advisor.report.machine_texts import render_calibration

    sys.stdout.write(render_calibration(summary))


def _cluster_text(cluster: Cluster) -> str:
    from placement_advisor.cost.calibration_summary import CLUSTER_FILE_HEAD
    from placement_advisor.machine.cluster_file import cluster_as_toml

    return CLUSTER_FILE_HEAD + cluster_as_toml(cluster)
