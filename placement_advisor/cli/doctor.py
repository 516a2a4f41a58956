"""`advisor doctor`: what to know of this machine, or of several hosts, before trying."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.host_options import (
    HostFile,
    HostLink,
    Hosts,
    Launch,
    Secret,
    hosts_asked,
)
from placement_advisor.cli.output_streams import print_json

if TYPE_CHECKING:
    from placement_advisor.analysis.hosts import HostsAsked

CHECK_FAILED = 1


def doctor(
    hosts: Hosts = None,
    hostfile: HostFile = None,
    launch: Launch = None,
    link: HostLink = None,
    secret: Secret = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all facts and findings as JSON on stdout.")
    ] = False,
) -> None:
    """Check versions, GPUs, cores, memory and permissions here, and say what to type next.

    With --hosts, check these hosts and the ways between them. Exit code 1 if `advisor analyze`
    cannot work.
    """
    asked = hosts_asked(hosts, hostfile, launch, link, secret)
    can_analyze = _this_machine(as_json=as_json) if asked is None else _hosts(asked, as_json)
    if not can_analyze:
        raise typer.Exit(CHECK_FAILED)


def _this_machine(*, as_json: bool) -> bool:
    """Report what is here, without TensorFlow; return whether an analysis can work."""
    from placement_advisor.machine.doctor.checks import check_all
    from placement_advisor.machine.doctor.examine_machine import examine

    facts = examine()
    if as_json:
        from placement_advisor.report.doctor_json import doctor_as_json

        print_json(doctor_as_json(facts))
    else:
        from placement_advisor.report.doctor_text import render_doctor

        sys.stdout.write(render_doctor(facts))
    return not any(check.blocks for check in check_all(facts))


def _hosts(asked: HostsAsked, as_json: bool) -> bool:
    """Report what hosts are like; return whether an analysis can work there."""
    from placement_advisor.analysis.examine_hosts import examine_hosts
    from placement_advisor.analysis.host_checks import all_checks
    from placement_advisor.cli.progress import progress

    with progress(quiet=as_json) as watcher:
        found = examine_hosts(asked, watcher)
    if as_json:
        from placement_advisor.report.hosts_json import hosts_as_json

        print_json(hosts_as_json(found))
    else:
        from placement_advisor.report.hosts_text import render_hosts

        sys.stdout.write(render_hosts(found))
    return not any(check.blocks for check in all_checks(found))
