"""`advisor analyze`: the main job, from a model file to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor import defaults
from placement_advisor.cli import options
from placement_advisor.cli.console import print_json, progress, say, warn
from placement_advisor.cli.results import Verbose, print_analysis
from placement_advisor.cli.run import train
from placement_advisor.errors import AdvisorError
from placement_advisor.tf.load.model_source import ModelSource, SourceKind, source_kind

if TYPE_CHECKING:
    from placement_advisor.analysis.hosts import HostOptions


@options.takes(source=options.model_source, asked=options.hosts_asked)
def analyze(
    *,
    devices: Annotated[
        int | None,
        typer.Option(min=2, help=f"How many devices to split over. Default: {defaults.DEVICES}."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC|FILE",
            autocompletion=options.complete_hardware,
            help="Predict for devices that are not here, like 2xV100-NVLink, or for those of a "
            "cluster file (.toml). Nothing runs.",
        ),
    ] = None,
    testbed: Annotated[
        options.TestbedChoice | None,
        typer.Option(help="Where candidates run. Default: GPUs if there are enough, else workers."),
    ] = None,
    asked: HostOptions | None,
    costs: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="With --hardware: op times and link speeds from a profile that was recorded "
            "there, an .xplane.pb file or a log folder.",
        ),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            autocompletion=options.complete_candidates,
            help=f"Candidates to try: {options.CANDIDATES}. Default: all are predicted, the "
            "best of them run. `single` always runs.",
        ),
    ] = None,
    ratios: Annotated[
        str | None,
        typer.Option(
            metavar="A:B",
            help="Samples per device where the batch is split, such as 3:2. Default: even.",
        ),
    ] = None,
    effort: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="How long to search for a better placement, in units of about a second. Default: "
            f"{defaults.EFFORT:g}, with --quick {defaults.QUICK_EFFORT:g}.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random search.")] = 0,
    source: ModelSource,
    steps: Annotated[
        int, typer.Option(min=1, help="Timed steps per candidate and round.")
    ] = defaults.STEPS,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Fewest rounds, each of which times every candidate once. More follow while in "
            f"doubt, for a minute or two. Default: {defaults.ROUNDS}, fewer if they take longer.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Add rounds to the analysis in the output folder; all other options must be "
            "the same. Costs and candidates stay. --rounds says how many to add.",
        ),
    ] = False,
    refine: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many candidates may join after the others have run. Measurements correct "
            "the predictions, and a search goes on.",
        ),
    ] = defaults.REFINE,
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="With --no-run no step runs: all is simulated.")
    ] = True,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="--no-run and more: a short search, no split of the batch, no break-even, "
            "reports in text alone. It takes only seconds after the trace.",
        ),
    ] = False,
    open_ports: options.OpenPorts = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Output folder. Default: advisor-out/<model>/, of PATH:NAME advisor-out/"
            "<model>-<NAME>/. Options that ask for another answer add what they are: "
            "advisor-out/<model>-batch64-2xA100-quick/.",
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Run the script to its end afterwards, as `advisor run` does."
        ),
    ] = False,
    as_json: options.AsJson = False,
    verbose: Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Trace a model, simulate and run candidate placements, and say whether to split."""
    from placement_advisor.analysis.options import AnalyzeOptions, effort_of
    from placement_advisor.machine.testbed_plan import TestbedKind
    from placement_advisor.report.analysis_folder import analyze_into_folder
    from placement_advisor.results.analysis import Analysis

    if hardware is not None and (devices is not None or testbed is not None):
        option = "--devices" if devices is not None else "--testbed"
        raise AdvisorError(
            f"{option} and --hardware cannot be used together",
            hint="--hardware says how many there are",
        )
    options.refuse_beside_hosts(
        asked,
        {
            "--devices": devices is not None,
            "--hardware": hardware is not None,
            "--testbed": testbed is not None,
            "--no-run": not run,
            "--quick": quick,
            "--open-ports": open_ports,
        },
    )
    if apply and source_kind(Path(source.path)) is not SourceKind.PYTHON:
        raise AdvisorError(f"--apply: {source.path} is not a script", hint="leave it out")
    if apply and source.name is not None:
        raise AdvisorError(
            f"--apply trains {source.path} as a script, not {source.name} of it",
            hint=f"leave out :{source.name}, or --apply",
        )
    if costs is not None and hardware is None:
        raise AdvisorError(
            "--costs needs --hardware", hint="it says where the profile was recorded: 2xV100-NVLink"
        )
    wanted = AnalyzeOptions(
        source=source,
        devices=asked.device_count if asked else devices or defaults.DEVICES,
        hosts=asked,
        hardware=hardware,
        costs=costs,
        testbed=None if testbed is None else TestbedKind(testbed.value),
        candidates=None if candidates is None else options.split_names("--candidates", candidates),
        ratios=None if ratios is None else options.split_ratios("--ratios", ratios),
        effort=effort_of(effort, seed, quick=quick),
        steps=steps,
        rounds=rounds,
        refine=refine,
        run=run and not quick,
        quick=quick,
        open_ports=open_ports,
        output=output,
        resume=resume,
    )
    try:
        with progress(quiet=quiet) as watcher:
            analysis = analyze_into_folder(wanted, watcher)
    except KeyboardInterrupt:
        kept = "nothing of this analysis is kept, timed rounds included"
        say(f"{kept}; {wanted.folder} is as it was")
        raise
    if as_json:
        if not quiet:
            warn(analysis.warnings)
        print_json(Analysis.of(analysis))
    else:
        print_analysis(wanted.folder, verbose=verbose)
    if apply:
        train(source.path, source.module, wanted.folder)
