"""`advisor hardware`: what `--hardware` knows by name. Needs no TensorFlow."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import print_json


def hardware(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A GPU, a link or a machine, such as V100, NVLink2 or 4xA100.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that is known as JSON on stdout.")
    ] = False,
) -> None:
    """List GPUs and links that --hardware takes, and what predictions for them rest on.

    With a NAME: its figures, with what was measured, and its sources; of a machine those of its
    GPUs and links.
    """
    from placement_advisor.machine.presets import named_presets

    presets = None if name is None else named_presets(name)
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.machine import Hardware

        print_json(plain(Hardware.of(presets)))
        return
    from placement_advisor.report.machine_texts import render_hardware

    sys.stdout.write(render_hardware(presets))
