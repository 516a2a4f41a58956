"""`advisor report`: one file that shows an analysis in any browser. Needs no TensorFlow."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated

import typer


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
    from placement_advisor.files.output import holding, output_file
    from placement_advisor.report.find_analysis import is_text_only, text_only_error
    from placement_advisor.report.html_file import REPORT_FILE, report_html

    if is_text_only(folder):
        raise text_only_error(folder, shown="no pictures, and so no report.html")
    path = output or folder / REPORT_FILE
    text = report_html(folder)
    with output_file(path, option="-o") as put:
        put(holding(text))
    print(f"{path} shows {folder} in any browser")
