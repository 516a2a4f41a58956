"""`advisor view`: the results of analyses in TensorBoard."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from placement_advisor import defaults
from placement_advisor.cli.output_streams import say
from placement_advisor.errors import AdvisorError


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="What `advisor analyze` wrote, or a folder of several. Default: advisor-out.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any that is free.")
    ] = 6006,
    host: Annotated[
        str, typer.Option(help="Address to listen on. By default only this machine can connect.")
    ] = "127.0.0.1",
) -> None:
    """Show analyses in TensorBoard, running ones included, until Ctrl-C."""
    from placement_advisor.report.find_analysis import (
        NO_ANALYSIS,
        find_runs,
        finished_analyses,
        is_text_only,
        text_only_error,
    )
    from placement_advisor.report.tensorboard.server import tensorboard

    logdir = folder or Path(defaults.OUTPUT)
    if not logdir.is_dir():
        raise AdvisorError(f"{logdir}: no such folder", hint=NO_ANALYSIS)
    root = logdir.resolve()
    quick = [
        logdir / each.relative_to(root) for each in finished_analyses(root) if is_text_only(each)
    ]
    if next(find_runs(root), None) is None:
        if quick:
            raise text_only_error(quick[0], shown="nothing to look at in TensorBoard")
        raise AdvisorError(f"{logdir}: holds no analysis", hint=NO_ANALYSIS)
    for folder in quick:
        say(f"not shown, as it is text alone: {folder}; advisor show {shlex.quote(str(folder))}")
    say("starting TensorBoard")
    try:
        with tensorboard(logdir, host, port) as (address, process):
            print(f"{address}#placement shows {logdir} (Ctrl-C ends it)", flush=True)
            process.wait()
    except KeyboardInterrupt:  # The way to end it.
        return
    raise AdvisorError("TensorBoard ended by itself")
