"""`advisor doctor`: what to know of this machine before trying. Needs no TensorFlow."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from placement_advisor.cli.output_streams import print_json

CHECK_FAILED = 1


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all facts and findings as JSON on stdout.")
    ] = False,
) -> None:
    """Check versions, GPUs, cores, memory and permissions here, and say what to type next.

    Exit code 1 if `advisor analyze` cannot work here.
    """
    from placement_advisor.machine.doctor.checks import check_all
    from placement_advisor.machine.doctor.examine_machine import examine

    facts = examine()
    if as_json:
        from placement_advisor.report.doctor_json import doctor_as_json

        print_json(doctor_as_json(facts))
    else:
        from placement_advisor.report.doctor_text import render_doctor

        sys.stdout.write(render_doctor(facts))
    if any(check.blocks for check in check_all(facts)):
        raise typer.Exit(CHECK_FAILED)
