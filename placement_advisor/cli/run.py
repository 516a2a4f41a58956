"""`advisor run`: trains a script as it is, with the split that an analysis has found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from placement_advisor import defaults
from placement_advisor.cli.console import say
from placement_advisor.cli.options import Module, script_arguments
from placement_advisor.errors import AdvisorError
from placement_advisor.tf.load.model_source import module_path

if TYPE_CHECKING:
    from placement_advisor.tf.training.trial import SplitPlan


def run(
    script: Annotated[
        str, typer.Argument(metavar="PATH", help="Python script, its own arguments behind --.")
    ],
    placement: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="Output folder of `advisor analyze`, or one of its placement files. Default: "
            "the newest analysis of this script in advisor-out.",
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
            help="Cut this machine's CPU into so many devices. Default: as many as the split has, "
            "if CPUs stood in for its devices.",
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
    ] = defaults.TRIAL_STEPS,
    no_trial: Annotated[
        bool, typer.Option("--no-trial", help="Train with the split, faster or not.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Record ten steps with the profiler, and say at the end what the split copies.",
        ),
    ] = None,
) -> None:
    """Run a training script as it is, its step split as an analysis recommends."""
    from placement_advisor.report.find_analysis import find_analysis
    from placement_advisor.report.split_plan import analysis_of, plan_of_file

    path = module_path(script) if module else script
    if not Path(path).is_file():
        raise AdvisorError(f"{path}: no such file", hint="give the .py file of a script")
    if placement is None:
        found: Path | SplitPlan = analysis_of(path, Path(defaults.OUTPUT))
    elif placement.is_file():
        if candidate is not None:
            raise AdvisorError(
                f"--candidate names a split of an analysis, and {placement} is a single one",
                hint="leave it out, or give the folder of the analysis",
            )
        found = plan_of_file(placement)
    else:
        found = find_analysis(placement)
    train(
        path,
        script if module else None,
        found,
        candidate=candidate,
        devices=devices,
        trial_steps=0 if no_trial else trial,
        profile=profile,
    )


def train(
    path: str,
    module: str | None,
    by: Path | SplitPlan,
    *,
    candidate: str | None = None,
    devices: int | None = None,
    trial_steps: int = defaults.TRIAL_STEPS,
    profile: Path | None = None,
) -> NoReturn:
    """Let a script take this process over, trained by the folder of an analysis, or by a plan.

    Signals, output and exit code are the script's then.

    Raises:
        AdvisorError: the analysis has no such candidate.
    """
    from placement_advisor.report.split_plan import plan_of_analysis
    from placement_advisor.tf.training.trial import SPLIT_PLAN

    plan: SplitPlan | str
    if isinstance(by, Path):
        plan = plan_of_analysis(by, candidate, on_cpus=devices is not None)
    else:
        plan = by
    if isinstance(plan, str):
        others = "; --candidate NAME splits it all the same" if candidate is None else ""
        say(f"trains as it is: {plan}{others}")
        _become(*(("-m", module) if module else (path,)))
    request = {
        "plan": SPLIT_PLAN.dump_python(plan, mode="json"),
        "analysis": str(by.resolve()) if isinstance(by, Path) else None,
        "module": module,
        "logical_cpus": devices or (len(plan.devices) if plan.on_stand_ins else 0),
        "trial_steps": trial_steps,
        "profile": None if profile is None else str(profile.resolve()),
    }
    # -P: the current folder is no place to import ours from.
    _become("-P", "-m", "placement_advisor.cli.placed_script", json.dumps(request), path)


def _become(*words: str) -> NoReturn:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *words, *script_arguments()])
