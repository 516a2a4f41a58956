"""`advisor show`, `diff`, `report`, `view` and `profile`: commands that read what was measured."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor import defaults
from placement_advisor.cli.console import answer, progress, say, text_output
from placement_advisor.cli.options import AsJson, Quiet
from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import LOG_FOLDER
from placement_advisor.report.progress import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.report.terminal import Line


# A step of a thousand candidates would not fill it.
_MOST_BYTES = 10_000_000

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="All of it, with predictions, reasons and copies.")
]


def show(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="Output folder of `advisor analyze`, or a folder of several: the newest "
            "counts. Default: advisor-out.",
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Print a finished analysis again."""
    from placement_advisor.report.find_analysis import find_analysis

    print_analysis(find_analysis(folder or Path(defaults.OUTPUT)), verbose=verbose)


def print_analysis(folder: Path, *, verbose: bool) -> None:
    """Print the analysis that a folder holds, on one screen or in full.

    Raises:
        AdvisorError: a file of it cannot be read, or is none.
    """
    if verbose:
        sys.stdout.write(_full_text(folder))
        if (folder / LOG_FOLDER).is_dir():  # A quick analysis has none.
            view = f"In TensorBoard: advisor view {shlex.quote(str(folder))}"
            sys.stdout.write(f"{harmless(view)}\n")
        return
    from rich.console import Console

    from placement_advisor.report.find_analysis import read_analysis
    from placement_advisor.report.terminal import screen
    from placement_advisor.results.analysis import ANALYSIS

    console = Console()
    lines = screen(read_analysis(folder / ANALYSIS), folder, console.width)
    sys.stdout.write(shown(lines, color=console.color_system is not None))


def shown(lines: Iterable[Line], *, color: bool) -> str:
    """Return lines as text that drives nothing, with codes for colour or without."""
    from rich.color import ColorSystem
    from rich.style import Style

    system = ColorSystem.STANDARD if color else None
    return "".join(
        f"{Style.parse(line.style).render(harmless(line.text), color_system=system)}\n"
        for line in lines
    )


def _full_text(folder: Path) -> str:
    from placement_advisor.files.untrusted import read_plain
    from placement_advisor.results.analysis import FULL_TEXT

    path = folder / FULL_TEXT
    try:
        return harmless(read_plain(path, _MOST_BYTES).decode("utf-8", errors="replace"))
    except OSError as error:
        raise AdvisorError(
            f"{path}: cannot be read: {error.strerror}", hint="`advisor analyze` writes it"
        ) from None


_HELP = "Output folder of `advisor analyze`, or a folder of several: the newest counts."


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help=_HELP)],
    after: Annotated[Path, typer.Argument(metavar="B", help="The later one.")],
    as_json: AsJson = False,
) -> None:
    """Say what changed between two analyses, and why the verdict did."""
    from placement_advisor.report.find_analysis import find_analysis, read_analysis
    from placement_advisor.report.terminal import render_difference
    from placement_advisor.results.analysis import ANALYSIS
    from placement_advisor.results.difference import difference

    folders = find_analysis(before), find_analysis(after)
    ours, theirs = (read_analysis(folder / ANALYSIS) for folder in folders)
    differs = ours.model.graph_fingerprint != theirs.model.graph_fingerprint
    found = difference(ours, theirs, _graphs(*folders) if differs else None)
    answer(found, lambda it: it, lambda it: harmless(render_difference(it)), as_json=as_json)


def _graphs(before: Path, after: Path) -> tuple[OpGraph, OpGraph] | None:
    """Return the graphs of two analyses; None unless both are there.

    Raises:
        AdvisorError: one of them cannot be read, or is none.
    """
    from placement_advisor.analysis.analysis_result import GRAPH
    from placement_advisor.graph.op_graph import OpGraph

    files = before / GRAPH, after / GRAPH
    if not all(file.is_file() for file in files):
        return None
    return OpGraph.load(files[0]), OpGraph.load(files[1])


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of an analysis: advisor-out/MODEL.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write it. Default: DIR/report.html."),
    ] = None,
) -> None:
    """Write the analysis in a folder as one HTML file to pass on."""
    from placement_advisor.report.find_analysis import is_text_only, text_only_error
    from placement_advisor.report.html_file import REPORT_FILE, report_html

    if is_text_only(folder):
        raise text_only_error(folder, shown="no pictures, and so no report.html")
    path = output or folder / REPORT_FILE
    text = report_html(folder)
    with text_output(path) as write:
        write(text)
    print(f"{path} shows {folder} in any browser")


def view(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="Folder that `advisor analyze` wrote, or a folder of several. "
            "Default: advisor-out.",
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
    from placement_advisor.report import find_analysis as found
    from placement_advisor.report.tensorboard.server import tensorboard

    logdir = folder or Path(defaults.OUTPUT)
    if not logdir.is_dir():
        raise AdvisorError(f"{logdir}: no such folder", hint=found.NO_ANALYSIS)
    root = logdir.resolve()
    finished = filter(found.is_text_only, found.finished_analyses(root))
    quick = [logdir / each.relative_to(root) for each in finished]
    if next(found.find_runs(root), None) is None:
        if quick:
            raise found.text_only_error(quick[0], shown="nothing to look at in TensorBoard")
        raise AdvisorError(f"{logdir}: holds no analysis", hint=found.NO_ANALYSIS)
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
            help="A TensorBoard log folder (its newest run), a run, or an .xplane.pb file. Also a "
            "Chrome trace of TensorBoard or PyTorch, or a table of nvprof or Nsight Systems.",
        ),
    ],
    graph: Annotated[
        Path | None,
        typer.Option(help="Graph file from `advisor trace`, for layers and sizes of tensors."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Format of the output.")] = Format.TEXT,
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
    from placement_advisor.files.contract import json_text
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.profile.read_profile import read_profile
    from placement_advisor.report.steps import profile_as_markdown, render_profile
    from placement_advisor.results.steps import Profile

    with text_output(output, read=path) as write, progress(quiet=quiet) as watcher:
        ops = None if graph is None else OpGraph.load(graph)
        read = read_profile(path, graph=ops, ask_xprof=xprof, working=watcher.working)
        if as_json or form is Format.JSON:
            write(json_text(Profile.of(read)))
        else:
            write(render_profile(read) if form is Format.TEXT else profile_as_markdown(read))
