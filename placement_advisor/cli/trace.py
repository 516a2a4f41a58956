"""`advisor trace`: from a model to a graph file, which needs no TensorFlow from there on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from placement_advisor.tf.answers import Traced
    from placement_advisor.tf.load.model_source import ModelSource


def trace(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Graph file to write. Default: <model>.graph.json.gz, here."
        ),
    ] = None,
    module: Module = False,
    step: Step = None,
    batch_size: BatchSize = None,
    mode: ModeChoice = None,
    outputs: Outputs = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout.")
    ] = False,
    quiet: Quiet = False,
    time_limit: TimeLimit = TIME_LIMIT_S,
    capture_timeout: CaptureTimeout = CAPTURE_TIMEOUT_S,
) -> None:
    """Trace a model into a graph file, and sum up what it holds."""
    from placement_advisor.analysis.tracing import trace_model
    from placement_advisor.files.output import output_file
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
    path = Path(source.path)
    file = output or Path(f"{path.resolve().stem}.graph.json.gz")
    source_kind(path)
    with progress(quiet=quiet) as watcher, output_file(file, option="-o", read=path) as put:
        traced = trace_model(source, watcher)
        watcher.working(f"writing {file}", 0, 1)
        put(lambda path: traced.graph.save(path, traced.requested_device_of, traced.traced_as))
    _print(traced, source, file, as_json=as_json)


def _print(traced: Traced, source: ModelSource, file: Path, *, as_json: bool) -> None:
    from placement_advisor.graph.graph_summary import summarize

    summary = summarize(traced.graph)
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.trace import Trace

        told = Trace.of(traced, summary, model_path=source.path, graph_file=str(file))
        print_json(plain(told))
        return
    from placement_advisor.report.steps import render_trace

    sys.stdout.write(render_trace(traced, summary, model_path=source.path, graph_file=str(file)))
