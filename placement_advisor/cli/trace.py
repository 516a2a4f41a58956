"""`advisor trace`: from a model to a graph file, which needs no TensorFlow from there on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.progress import progress
from placement_advisor.cli.source_options import (
    BatchSize,
    ModeChoice,
    Model,
    Outputs,
    Quiet,
    TimeLimit,
    model_source,
)
from placement_advisor.defaults import TIME_LIMIT_S

if TYPE_CHECKING:
    from placement_advisor.model_source import ModelSource
    from placement_advisor.tf.answers import Traced


def trace(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Graph file to write. Default: <model>.graph.json.gz, here."
        ),
    ] = None,
    batch_size: BatchSize = None,
    mode: ModeChoice = None,
    outputs: Outputs = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout.")
    ] = False,
    quiet: Quiet = False,
    time_limit: TimeLimit = TIME_LIMIT_S,
) -> None:
    """Trace a model into a graph file, and sum up what it holds."""
    from placement_advisor import pipeline

    source = model_source(model, mode, batch_size, outputs, time_limit)
    file = output or Path(f"{Path(source.path).resolve().stem}.graph.json.gz")
    with progress(quiet=quiet) as watcher:
        traced = pipeline.trace(source, file, watcher)
    _print(traced, source, file, as_json=as_json)


def _print(traced: Traced, source: ModelSource, file: Path, *, as_json: bool) -> None:
    from placement_advisor.graph_summary import summarize

    summary = summarize(traced.graph)
    if as_json:
        from placement_advisor.report.trace_json import trace_as_json

        content = trace_as_json(traced, summary, model_path=source.path, graph_file=str(file))
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    from placement_advisor.report.trace_summary import render_trace

    sys.stdout.write(render_trace(traced, summary, model_path=source.path, graph_file=str(file)))
