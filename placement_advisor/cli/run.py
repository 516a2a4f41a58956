"""`advisor run`: trains a script as it is, with the split that an analysis has found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from placement_advisor import defaults
from placement_advisor.cli.output_streams import say
from placement_advisor.cli.source_options import Module, script_arguments
from placement_advisor.errors import AdvisorError
from placement_advisor.tf.load.model_source import module_path

if TYPE_CHECKING:
    from placement_advisor.tf.own_step.split_plan import SplitPlan

_TRIAL_STEPS = 20


def run(
    script: Annotated[
        str, typer.Argument(metavar="PATH", help="Python script, its own arguments behind --.")
    ],
    placement: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="What `advisor analyze` wrote, or one of its placement files. Default: the newest "
            "analysis of this script in advisor-out.",
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Train with this split, whatever the verdict is. Default: the one that the "
            "analysis recommends, none if it recommends none.",
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Cut this machine's CPU into so many devices. Default: as many as a named split "
            "of CPU stand-ins has.",
        ),
    ] = None,
    module: Module = False,
    trial: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Steps that are timed each way, in turns, before the faster way goes on.",
        ),
    ] = _TRIAL_STEPS,
    no_trial: Annotated[
        bool, typer.Option("--no-trial", help="Train with the split, faster or not.")
    ] = False,
) -> None:
    """Train with a script as it is, its step split as an analysis recommends."""
    from placement_advisor.report.split_plan import (
        analysis_of,
        is_for_stand_ins,
        plan_of_analysis,
        plan_of_file,
    )

    path = module_path(script) if module else script
    if not Path(path).is_file():
        raise AdvisorError(f"{path}: no such file", hint="give the .py file of a script")
    program = ["-m", script] if module else [path]
    folder = None
    if placement is not None and placement.is_file():
        plan: SplitPlan | str = plan_of_file(placement)
    else:
        folder = placement or analysis_of(path, Path(defaults.OUTPUT))
        plan = plan_of_analysis(folder, candidate, on_cpus=devices is not None)
        if devices is None and not isinstance(plan, str) and is_for_stand_ins(folder):
            devices = len(plan.devices)
    if isinstance(plan, str):
        others = "" if candidate else "; --candidate NAME trains with a split all the same"
        say(f"trains as it is: {plan}{others}")
        _become(program)
    request = {
        "plan": plan.as_json(),
        "analysis": None if folder is None else str(folder.resolve()),
        "module": script if module else None,
        "logical_cpus": devices or 0,
        "trial_steps": 0 if no_trial else trial,
    }
    # -P: the current folder is no place to import ours from.
    _become(["-P", "-m", "placement_advisor.cli.placed_script", json.dumps(request), path])


def _become(words: list[str]) -> NoReturn:
    """Let Python take this process over, so that signals, output and exit code are the script's."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *words, *script_arguments()])
