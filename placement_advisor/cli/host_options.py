"""The options by which several hosts are asked for, of each command that has them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor import defaults
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.hosts import HostOptions
    from placement_advisor.remote_hosts.host_requests import HostRequest

_FEWEST_DEVICES = 2


class LinkChoice(StrEnum):
    """How hosts reach one another."""

    TLS = "tls"
    DIRECT = "direct"


Hosts = Annotated[
    str | None,
    typer.Option(
        metavar="A:2,B:2",
        help="Run on these hosts, with so many devices of each (docs/hosts.md). `localhost` is "
        "this machine. An address behind @ is where the others reach it, if not by its name; with "
        "a port, such as a:2@10.0.0.1:7600, `advisor worker --listen` waits there. `slurm` and "
        "`tf-config` take them from the environment.",
    ),
]
HostFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The same as --hosts, a line for each host, such as: a slots=2."
    ),
]
Launch = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help=f"What runs a command on a host. Default: '{defaults.LAUNCH}'; also "
        "'srun -w {host} -N1 -n1', 'kubectl exec -i {host} --'.",
    ),
]
HostLink = Annotated[
    LinkChoice | None,
    typer.Option(
        "--link",
        help="How hosts reach one another: by a relay with TLS (the default), or directly, "
        "TensorFlow's servers open to whoever reaches the hosts.",
    ),
]
Secret = Annotated[
    Path | None,
    typer.Option(
        "--secret",
        metavar="FILE",
        help="What hosts with a port in --hosts share: a copy of the file that they serve.",
    ),
]


def hosts_asked(
    hosts: str | None,
    hostfile: Path | None,
    launch: str | None,
    link: LinkChoice | None,
    secret: Path | None,
) -> HostOptions | None:
    """Return the hosts that are asked for, None if there are none.

    Raises:
        AdvisorError: the options contradict each other, or name no hosts.
    """
    if hosts is None and hostfile is None:
        for option, value in (("--launch", launch), ("--link", link), ("--secret", secret)):
            if value is not None:
                raise AdvisorError(f"{option} needs --hosts or --hostfile")
        return None
    from placement_advisor.analysis.hosts import HostOptions, HostSource, hosts_from_environment
    from placement_advisor.machine import testbed_plan
    from placement_advisor.remote_hosts.host_requests import parse_hosts, read_hostfile

    if hosts is not None and hostfile is not None:
        raise AdvisorError("--hosts and --hostfile cannot be used together")
    if hostfile is not None:
        requests = read_hostfile(hostfile)
    elif hosts in (HostSource.SLURM, HostSource.TF_CONFIG):
        requests = hosts_from_environment(HostSource(hosts))
    else:
        requests = parse_hosts(hosts or "")
    _check_secret(requests, secret)
    asked = HostOptions(
        requests=requests,
        launch=launch or defaults.LAUNCH,
        link=testbed_plan.HostLink((link or LinkChoice.TLS).value),
        secret=secret,
    )
    if asked.device_count < _FEWEST_DEVICES:
        raise AdvisorError(
            "one device has nothing to be split over", hint="ask for two or more: --hosts a:1,b:1"
        )
    return asked


def _check_secret(requests: tuple[HostRequest, ...], secret: Path | None) -> None:
    waiting = [request.name for request in requests if request.port is not None]
    if waiting and secret is None:
        raise AdvisorError(
            f"--hosts: at the port of host {waiting[0]} a service waits, which serves holders "
            "of its secret alone",
            hint="name your copy of that file: --secret FILE",
        )
    if secret is not None and not waiting:
        raise AdvisorError(
            "--secret: no host has a port, so none is asked for one",
            hint="name address and port of `advisor worker --listen`: a:2@10.0.0.1:7600",
        )


def refuse_beside_hosts(asked: HostOptions | None, others: Mapping[str, bool]) -> None:
    """Refuse options that hosts leave no room for; ``others`` says which are given.

    Raises:
        AdvisorError: one is.
    """
    for option, is_given in others.items():
        if asked is not None and is_given:
            raise AdvisorError(
                f"{option} and --hosts cannot be used together",
                hint="where nothing is to run, `advisor calibrate --hosts … -o cluster.toml` "
                "writes what --hardware takes",
            )
