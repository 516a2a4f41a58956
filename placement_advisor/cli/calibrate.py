"""`advisor calibrate`: what the devices here take for copies, for starting a step, for waiting."""

from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.cli.analyze import TestbedChoice  # noqa: TC001 - typer reads it
from placement_advisor.cli.progress import progress
from placement_advisor.cli.source_options import OpenPorts, Quiet  # noqa: TC001 - typer reads it
from placement_advisor.cli.streams import say
from placement_advisor.defaults import DEVICES


def calibrate(
    devices: Annotated[int, typer.Option(min=2, help="How many devices to measure.")] = DEVICES,
    testbed: Annotated[
        TestbedChoice | None,
        typer.Option(help="What to measure. Default: GPUs if there are enough, else workers."),
    ] = None,
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
    from placement_advisor import pipeline
    from placement_advisor.testbed import TestbedKind

    kind = None if testbed is None else TestbedKind(testbed.value)
    with progress(quiet=quiet) as watcher:
        summary = pipeline.calibrate(kind, devices, output, open_ports, watcher)
    if not quiet:
        for warning in summary.warnings:
            say(f"warning: {warning}")
    if as_json:
        from placement_advisor.report.calibration_json import calibration_as_json

        print(json.dumps(calibration_as_json(summary), indent=2, ensure_ascii=False))
        return
    from placement_advisor.report.calibration_text import render_calibration

    sys.stdout.write(render_calibration(summary))
