"""`advisor doctor`: what to know of this machine, or of several hosts, before trying."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.host_options import (
    HostFile,
    HostLink,
    Hosts,
    Launch,
    Secret,
    hosts_asked,
    refuse_beside_hosts,
)
from placement_advisor.cli.output_streams import print_json
from placement_advisor.cli.source_options import OpenPorts  # noqa: TC001 - typer reads it
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from placement_advisor.analysis.hosts import HostOptions

CHECK_FAILED = 1
_BUNDLE = "advisor-acceptance"


def doctor(
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launch: Launch = None,
    link: HostLink = None,
    secret: Secret = None,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Run a known step on the GPUs, the workers or the hosts, and hold what profiles "
            "say against what must be (docs/acceptance.md). Untried on GPUs.",
        ),
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.zip",
            help="Where --run leaves what to attach to an issue. Default: "
            f"{_BUNDLE}.zip, or the next free name.",
        ),
    ] = None,
    open_ports: OpenPorts = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all facts and findings as JSON on stdout.")
    ] = False,
) -> None:
    """Check versions, GPUs, cores, memory and permissions here, and say what to type next.

    With --hosts, check these hosts and the ways between them. Exit code 1 if `advisor analyze`
    cannot work. With --run, take a minute to see whether profiles tell the truth here; exit code 1
    if something is off.
    """
    asked = hosts_asked(hosts, hostfile, launch, link, secret)
    if run:
        refuse_beside_hosts(asked, {"--open-ports": open_ports})
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
    from placement_advisor.machine.doctor.checks import check_all
    from placement_advisor.machine.doctor.examine_machine import examine

    facts = examine()
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.doctor import Doctor

        print_json(plain(Doctor.of(facts)))
    else:
        from placement_advisor.report.doctor_text import render_doctor

        sys.stdout.write(render_doctor(facts))
    return not any(check.blocks for check in check_all(facts))


def _hosts(asked: HostOptions, as_json: bool) -> bool:
    """Report what hosts are like; return whether an analysis can work there."""
    from placement_advisor.analysis.host_doctor import all_checks, examine_hosts
    from placement_advisor.cli.progress import progress

    with progress(quiet=as_json) as watcher:
        found = examine_hosts(asked, watcher)
    if as_json:
        from placement_advisor.files.contract import plain
        from placement_advisor.results.doctor import Hosts

        print_json(plain(Hosts.of(found)))
    else:
        from placement_advisor.report.doctor_text import render_hosts

        sys.stdout.write(render_hosts(found))
    return not any(check.blocks for check in all_checks(found))


def _known_step(asked: HostOptions | None, bundle: Path, open_ports: bool, as_json: bool) -> bool:
    """Report what a known step shows, and leave a bundle; return whether to trust profiles."""
    from placement_advisor.analysis.acceptance import run_acceptance
    from placement_advisor.cli.progress import progress
    from placement_advisor.files.contract import plain
    from placement_advisor.files.output import output_file
    from placement_advisor.files.own_folders import scratch_folder
    from placement_advisor.machine.doctor.examine_machine import examine
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
    if as_json:
        print_json(plain(found))
    else:
        sys.stdout.write(render_acceptance(found))
    return found.trusted


def _free_name() -> Path:
    """Return the default name of a bundle, with a number if that is taken."""
    names = (Path(f"{_BUNDLE}{f'-{number}' if number > 1 else ''}.zip") for number in count(1))
    return next(name for name in names if not name.exists())
