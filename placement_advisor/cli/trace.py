"""`advisor trace`: from a model to a graph file, which needs no TensorFlow from there on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.analyze import DEFAULT_TIME_LIMIT_S, Mode, split_names
from placement_advisor.cli.progress import progress
from placement_advisor.model_source import ModelSource, split_name

if TYPE_CHECKING:
    from placement_advisor.tf.answers import Traced


def trace(
    model: Annotated[
        str,
        typer.Argument(
            metavar="PATH[:NAME]",
            help="Python file (NAME: what in it), .keras file, SavedModel directory (NAME: its "
            "signature) or frozen graph (.pb).",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Graph file to write. Default: <model>.graph.json.gz, here."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per step. Default: as in the example inputs, else 32."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Default: train if the model is compiled.")
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Ops or tensors that a frozen graph is asked for."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    time_limit: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="For loading and for tracing the model file."),
    ] = DEFAULT_TIME_LIMIT_S,
) -> None:
    """Trace a model into a graph file, and sum up what it holds."""
    from placement_advisor import pipeline

    path, name = split_name(model)
    source = ModelSource(
        path=path,
        name=name,
        mode=None if mode is None else mode.value,
        batch_size=batch_size,
        outputs=split_names("--outputs", outputs) if outputs is not None else (),
        time_limit_s=time_limit,
    )
    file = output or Path(f"{Path(path).resolve().stem}.graph.json.gz")
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
