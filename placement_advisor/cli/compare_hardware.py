"""`advisor compare-hardware`: which machine for a model, and how many of its devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import print_json
from placement_advisor.cli.progress import progress
from placement_advisor.cli.source_options import (
    BatchSize,
    CaptureTimeout,
    ModeChoice,
    Model,
    Module,
    Outputs,
    Quiet,
    Step,
    TimeLimit,
    model_source,
)
from placement_advisor.defaults import CAPTURE_TIMEOUT_S, TIME_LIMIT_S


def compare_hardware(
    model: Model,
    hardware: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC|FILE...",
            help="Machines like 8xV100-NVLink, hosts like 16x(8xH100-NVLink4)-8xInfiniBand400, "
            "also in levels, or cluster files (.toml), which may have levels.",
        ),
    ],
    mode: ModeChoice = None,
    module: Module = False,
    step: Step = None,
    batch_size: BatchSize = None,
    outputs: Outputs = None,
    price: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            help="What a device costs an hour, in any unit: once for each machine, in their order.",
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw speed-ups by number of devices into this file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON on stdout.")
    ] = False,
    quiet: Quiet = False,
    time_limit: TimeLimit = TIME_LIMIT_S,
    capture_timeout: CaptureTimeout = CAPTURE_TIMEOUT_S,
) -> None:
    """Simulate a model on 1, 2, 4, … devices of machines: what does each further one bring?"""
    from placement_advisor.analysis.compare_hardware import compare_hardware as compared
    from placement_advisor.tf.load.model_source import source_kind

    source = model_source(
        model,
        module=module,
        step=step,
        mode=mode,
        batch_size=batch_size,
        outputs=outputs,
        time_limit=time_limit,
        capture_timeout=capture_timeout,
    )
    source_kind(Path(source.path))
    with progress(quiet=quiet) as watcher:
        found = compared(source, hardware, price or None, watcher)
    if png is not None:
        from placement_advisor.files.output import output_file
        from placement_advisor.report.pictures.canvas import save
        from placement_advisor.report.pictures.result_plots import draw_scaling

        with output_file(png, option="--png", read=Path(source.path)) as put:
            put(lambda path: save(draw_scaling(found), path))
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.plans import Scaling

        print_json(plain(Scaling.of(found)))
        return
    from placement_advisor.report.plans import render_hardware_comparison

    sys.stdout.write(render_hardware_comparison(found))
