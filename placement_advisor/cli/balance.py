"""`advisor balance`: how much of a batch each device should get."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from placement_advisor import defaults
from placement_advisor.cli.analyze import TestbedChoice  # noqa: TC001 - typer reads it
from placement_advisor.cli.output_streams import print_json, say
from placement_advisor.cli.progress import progress
from placement_advisor.cli.source_options import (
    BatchSize,
    CaptureTimeout,
    ModeChoice,
    Model,
    Module,
    OpenPorts,
    Outputs,
    Quiet,
    Step,
    TimeLimit,
    model_source,
    split_sizes,
)


def balance(
    model: Model,
    mode: ModeChoice = None,
    module: Module = False,
    step: Step = None,
    batch_size: BatchSize = None,
    outputs: Outputs = None,
    devices: Annotated[
        int, typer.Option(min=2, help="How many devices to share the batch among.")
    ] = defaults.DEVICES,
    testbed: Annotated[
        TestbedChoice | None,
        typer.Option(help="What to time. Default: GPUs if there are enough, else workers."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE[:SIZE...]",
            help="Memory of each device, such as 16GB:8GB, or of all. Default: what GPUs say.",
        ),
    ] = None,
    open_ports: OpenPorts = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON on stdout.")
    ] = False,
    quiet: Quiet = False,
    time_limit: TimeLimit = defaults.TIME_LIMIT_S,
    capture_timeout: CaptureTimeout = defaults.CAPTURE_TIMEOUT_S,
) -> None:
    """Time each device alone at several batch sizes, and say how to share a batch among them."""
    from placement_advisor.analysis.balance import balance as balanced
    from placement_advisor.machine.testbed_plan import TestbedKind

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
    sizes = None if memory is None else split_sizes("--memory", memory)
    kind = None if testbed is None else TestbedKind(testbed.value)
    with progress(quiet=quiet) as watcher:
        found = balanced(source, kind, devices, sizes, open_ports, watcher)
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.plans import Balance

        print_json(plain(Balance.of(found)))
        return
    if not quiet:
        for warning in found.warnings:
            say(f"warning: {warning}")
    from placement_advisor.report.plans import render_balance

    sys.stdout.write(render_balance(found))
