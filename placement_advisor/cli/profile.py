"""`advisor profile`: where the time of devices went in a recorded profile. Needs no TensorFlow."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import json_text
from placement_advisor.cli.progress import progress
from placement_advisor.cli.source_options import Quiet  # noqa: TC001 - typer reads it


class Format(StrEnum):
    """How to write it."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def profile(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A TensorBoard log folder (its newest run), a run, an .xplane.pb file, a Chrome "
            "trace of TensorBoard or PyTorch, or a table of nvprof or Nsight Systems.",
        ),
    ],
    graph: Annotated[
        Path | None,
        typer.Option(help="What `advisor trace` wrote of the step: layers and sizes of tensors."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Form of the output.")] = Format.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write it here instead of to stdout.")
    ] = None,
    xprof: Annotated[
        bool,
        typer.Option("--xprof/--no-xprof", help="Show the figures of XProf's overview as well."),
    ] = True,
    quiet: Quiet = False,
) -> None:
    """Say where the time of a recorded profile went: compute, copies, idle."""
    from contextlib import ExitStack

    from placement_advisor.files.output import holding, output_file
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.profile.read_profile import read_profile

    with ExitStack() as stack:
        put = None
        if output is not None:
            put = stack.enter_context(output_file(output, option="-o", read=path))
        watcher = stack.enter_context(progress(quiet=quiet))
        ops = None if graph is None else OpGraph.load(graph)
        read = read_profile(path, graph=ops, ask_xprof=xprof, working=watcher.working)
        if as_json or form is Format.JSON:
            from placement_advisor.files.contract import plain
            from placement_advisor.results.steps import Profile

            text = json_text(plain(Profile.of(read)))
        elif form is Format.MARKDOWN:
            from placement_advisor.report.steps import profile_as_markdown

            text = profile_as_markdown(read)
        else:
            from placement_advisor.report.steps import render_profile

            text = render_profile(read)
        if put is None:
            sys.stdout.write(text)
        else:
            put(holding(text))
