"""`advisor hardware`, `doctor`, `calibrate`, `balance`, `compare-hardware` and `worker`."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli import options
from placement_advisor.cli.console import answer, print_json, progress, text_output, warn
from placement_advisor.defaults import DEVICES
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from placement_advisor.analysis.hosts import HostOptions
    from placement_advisor.tf.load.model_source import ModelSource


def hardware(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A GPU, a link or a machine, such as V100, NVLink2 or 4xA100.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List GPUs and links that --hardware takes, and what predictions for them rest on.

    With a NAME: its figures, with what was measured, and its sources; of a machine those of its
    GPUs and links.
    """
    from placement_advisor.machine.presets import named_presets
    from placement_advisor.report.machine_texts import render_hardware
    from placement_advisor.results.machine import Hardware

    presets = None if name is None else named_presets(name)
    answer(presets, Hardware.of, render_hardware, as_json=as_json)


CHECK_FAILED = 1
_BUNDLE = "advisor-acceptance"


@options.takes(asked=options.hosts_asked)
def doctor(
    asked: HostOptions | None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Run a known step on the GPUs, the workers or the hosts, and compare its "
            "profiles with the known answers (docs/how-to/acceptance.md). Untried on GPUs.",
        ),
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.zip",
            help="File that --run writes, for you to attach to an issue. Default: "
            f"{_BUNDLE}.zip, or the next free name.",
        ),
    ] = None,
    open_ports: options.OpenPorts = False,
    as_json: options.AsJson = False,
) -> None:
    """Check versions, GPUs, cores, memory and permissions here, and say what to type next.

    With --hosts, check these hosts and the ways between them. Exit code 1 if `advisor analyze`
    cannot work. With --run, take a minute to see whether profiles tell the truth here; exit code 1
    if something is off.
    """
    if run:
        options.refuse_beside_hosts(asked, {"--open-ports": open_ports})
        is_well = _known_step(asked, bundle or _free_name(), open_ports, as_json)
    else:
        for option, is_given in (("--bundle", bundle is not None), ("--open-ports", open_ports)):
            if is_given:
                raise AdvisorError(f"{option} needs --run")
        is_well = _this_machine(as_json=as_json) if asked is None else _hosts(asked, as_json)
    if not is_well:
        raise typer.Exit(CHECK_FAILED)


def _this_machine(*, as_json: bool) -> bool:
    """Report what is here, without TensorFlow; return whether an analysis can work."""
    from placement_advisor.machine.doctor_checks import check_all
    from placement_advisor.machine.machine_facts import examine

    facts = examine()
    if as_json:  # It needs NumPy, which may be what is missing here.
        from placement_advisor.results.doctor import Doctor

        print_json(Doctor.of(facts))
    else:
        from placement_advisor.report.doctor_text import render_doctor

        sys.stdout.write(render_doctor(facts))
    return not any(check.blocks for check in check_all(facts))


def _hosts(asked: HostOptions, as_json: bool) -> bool:
    """Report what hosts are like; return whether an analysis can work there."""
    from placement_advisor.analysis.doctor_hosts import all_checks, examine_hosts
    from placement_advisor.report.doctor_text import render_hosts
    from placement_advisor.results.doctor import Hosts

    with progress(quiet=as_json) as watcher:
        found = examine_hosts(asked, watcher)
    answer(found, Hosts.of, render_hosts, as_json=as_json)
    return not any(check.blocks for check in all_checks(found))


def _known_step(asked: HostOptions | None, bundle: Path, open_ports: bool, as_json: bool) -> bool:
    """Report what a known step shows, and leave a bundle; return whether to trust profiles."""
    from placement_advisor.analysis.acceptance import run_acceptance
    from placement_advisor.files.output import output_file, scratch_folder
    from placement_advisor.machine.machine_facts import examine
    from placement_advisor.report.machine_texts import render_acceptance, write_bundle
    from placement_advisor.results.machine import Acceptance

    if bundle.suffix != ".zip":
        raise AdvisorError(f"--bundle {bundle}: not the name of a bundle", hint="end it in .zip")
    with ExitStack() as stack:
        watcher = stack.enter_context(progress(quiet=as_json))
        put = stack.enter_context(output_file(bundle, option="--bundle"))
        scratch = stack.enter_context(scratch_folder())
        seen = run_acceptance(asked, open_ports, scratch, watcher)
        found, facts = Acceptance.of(seen, bundle), examine()
        put(lambda path: write_bundle(path, found, seen, facts))
    answer(found, lambda it: it, render_acceptance, as_json=as_json)
    return found.trusted


def _free_name() -> Path:
    """Return the default name of a bundle, with a number if that is taken."""
    names = (Path(f"{_BUNDLE}{f'-{number}' if number > 1 else ''}.zip") for number in count(1))
    return next(name for name in names if not name.exists())


@options.takes(asked=options.hosts_asked)
def calibrate(
    *,
    devices: Annotated[
        int | None,
        typer.Option(min=2, help=f"How many devices to measure. Default: {DEVICES}."),
    ] = None,
    testbed: Annotated[
        options.TestbedChoice | None,
        typer.Option(help="Testbed to measure. Default: GPUs if there are enough, else workers."),
    ] = None,
    asked: HostOptions | None,
    open_ports: options.OpenPorts = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.toml", help="Write a cluster file for --hardware, too."
        ),
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure copies and overheads of the devices here anew, and keep them for `analyze`."""
    from placement_advisor.analysis.calibrate import calibrate as measured
    from placement_advisor.cost.links import CLUSTER_FILE_HEAD
    from placement_advisor.machine.cluster_file import cluster_as_toml
    from placement_advisor.machine.testbed_plan import TestbedKind
    from placement_advisor.report.machine_texts import render_calibration
    from placement_advisor.results.machine import Calibration

    options.refuse_beside_hosts(
        asked,
        {
            "--devices": devices is not None,
            "--testbed": testbed is not None,
            "--open-ports": open_ports,
        },
    )
    kind = None if testbed is None else TestbedKind(testbed.value)
    if output is not None and output.suffix != ".toml":
        raise AdvisorError(f"-o {output}: not the name of a cluster file", hint="end it in .toml")
    with ExitStack() as stack:
        watcher = stack.enter_context(progress(quiet=quiet))
        put = stack.enter_context(text_output(output)) if output else None
        summary = measured(kind, devices or DEVICES, asked, output, open_ports, watcher)
        if put is not None:
            put(CLUSTER_FILE_HEAD + cluster_as_toml(summary.cluster))
    if not quiet:
        warn(summary.warnings)
    answer(summary, Calibration.of, render_calibration, as_json=as_json)


@options.takes(source=options.model_source)
def balance(
    source: ModelSource,
    devices: Annotated[
        int, typer.Option(min=2, help="How many devices to share the batch among.")
    ] = DEVICES,
    testbed: Annotated[
        options.TestbedChoice | None,
        typer.Option(help="Testbed to time. Default: GPUs if there are enough, else workers."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE[:SIZE...]",
            help="Memory of each device, such as 16GB:8GB, or of all. Default: what GPUs say.",
        ),
    ] = None,
    open_ports: options.OpenPorts = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Time each device alone at several batch sizes, and say how to share a batch among them."""
    from placement_advisor.analysis.balance import balance as balanced
    from placement_advisor.machine.testbed_plan import TestbedKind
    from placement_advisor.report.plans import render_balance
    from placement_advisor.results.plans import Balance

    sizes = None if memory is None else options.split_sizes("--memory", memory)
    kind = None if testbed is None else TestbedKind(testbed.value)
    with progress(quiet=quiet) as watcher:
        found = balanced(source, kind, devices, sizes, open_ports, watcher)
    if not quiet and not as_json:
        warn(found.warnings)
    answer(found, Balance.of, render_balance, as_json=as_json)


@options.takes(source=options.model_source)
def compare_hardware(
    source: ModelSource,
    hardware: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC|FILE...",
            autocompletion=options.complete_hardware,
            help="Machines like 8xV100-NVLink, hosts like 16x(8xH100-NVLink4)-8xInfiniBand400, "
            "also in levels, or cluster files (.toml), which may have levels.",
        ),
    ],
    price: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            help="Hourly price of a device, in any unit: once for each machine, in their order.",
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw speed-ups by number of devices into this file.")
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Simulate a model on 1, 2, 4, … devices of machines: what does each further one bring?"""
    from placement_advisor.analysis.compare_hardware import compare_hardware as compared
    from placement_advisor.report.plans import render_hardware_comparison
    from placement_advisor.results.plans import Scaling
    from placement_advisor.tf.load.model_source import source_kind

    source_kind(Path(source.path))
    with progress(quiet=quiet) as watcher:
        found = compared(source, hardware, price or None, watcher)
    if png is not None:
        from placement_advisor.files.output import output_file
        from placement_advisor.report.pictures.canvas import save
        from placement_advisor.report.pictures.result_plots import draw_scaling

        with output_file(png, option="--png", read=Path(source.path)) as put:
            put(lambda path: save(draw_scaling(found), path))
    answer(found, Scaling.of, render_hardware_comparison, as_json=as_json)


_STANDARD_INPUT = 0


def worker(
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio", help="Take orders on standard input and answer on standard output."
        ),
    ] = False,
) -> None:
    """Lend this machine's devices to one analysis. `advisor analyze --hosts` runs it there.

    It ends with its input, or when nothing is heard for 8 s, and leaves nothing behind.
    """
    if not stdio or os.isatty(_STANDARD_INPUT):
        raise AdvisorError(
            "worker: no command gives orders here",
            hint="`advisor analyze --hosts` runs `advisor worker --stdio` on each host, by ssh",
        )
    from placement_advisor.remote_hosts.conversation import take_standard_streams
    from placement_advisor.remote_hosts.service import serve

    serve(take_standard_streams())
