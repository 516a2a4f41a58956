"""`advisor worker`: lends this machine's devices to an analysis that another machine runs."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement_advisor.cli.console import say
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    import socket

_STANDARD_INPUT = 0
_HINT = (
    "`advisor analyze --hosts` runs `advisor worker --stdio` on each host, by ssh; "
    "--listen with --secret lets one wait there"
)


def worker(
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio", help="Take orders on standard input and answer on standard output."
        ),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDR:PORT",
            help="Wait at this address of this machine for analyses, one after the other. TLS; "
            "needs --secret.",
        ),
    ] = None,
    secret: Annotated[
        Path | None,
        typer.Option(
            "--secret", metavar="FILE", help="Serve only clients that have a copy of this file."
        ),
    ] = None,
    everywhere: Annotated[
        bool,
        typer.Option(
            "--everywhere", help="Accept an address that means every network: 0.0.0.0 or ::."
        ),
    ] = False,
    new_secret: Annotated[
        Path | None,
        typer.Option(
            "--new-secret", metavar="FILE", help="Make a file for --secret, and do nothing else."
        ),
    ] = None,
) -> None:
    """Lend this machine's devices to one analysis. `advisor analyze --hosts` runs it there.

    With --stdio it ends with its input, or when nothing is heard for 8 s, and leaves nothing
    behind. With --listen it waits for the next one then.
    """
    if [stdio, listen is not None, new_secret is not None].count(True) != 1:
        raise AdvisorError("worker: say one of --stdio, --listen and --new-secret", hint=_HINT)
    if listen is None and (secret is not None or everywhere):
        raise AdvisorError("worker: --secret and --everywhere belong to --listen", hint=_HINT)
    if new_secret is not None:
        _make_secret(new_secret)
    elif listen is not None:
        _wait_for_analyses(listen, secret, everywhere=everywhere)
    else:
        _serve_standard_streams()


def _make_secret(path: Path) -> None:
    from placement_advisor.remote_hosts.tls import write_secret

    write_secret(path)
    say(
        f"{path} is made. Anyone who has it can run programs as you on hosts that serve it: "
        "copy it only to them, by scp for example"
    )


def _serve_standard_streams() -> None:
    if os.isatty(_STANDARD_INPUT):
        raise AdvisorError("worker --stdio: a terminal cannot give orders", hint=_HINT)
    from placement_advisor.remote_hosts.conversation import take_standard_streams
    from placement_advisor.remote_hosts.service import serve

    serve(take_standard_streams())


def _wait_for_analyses(place: str, secret: Path | None, *, everywhere: bool) -> None:
    from placement_advisor.files.output import scratch_folder
    from placement_advisor.remote_hosts.relay import check_may_listen, parse_place, wait
    from placement_advisor.remote_hosts.tls import read_secret

    address, port = parse_place(place)
    if secret is None:
        raise AdvisorError(
            "worker --listen: no --secret, so anyone could run programs as you",
            hint="`advisor worker --new-secret FILE` makes one",
        )
    check_may_listen(address, everywhere=everywhere)
    shared = read_secret(secret)
    told = partial(say, f"waiting at {place}")
    with scratch_folder() as scratch:
        # What analyses leave goes with the service, however that ends.
        tempfile.tempdir = str(scratch)
        try:
            wait(address, port, shared, scratch, serve=_serve, opened=told)
        finally:
            tempfile.tempdir = None


def _serve(connection: socket.socket, relay_folder: Path) -> None:
    from placement_advisor.remote_hosts.conversation import PipeStream
    from placement_advisor.remote_hosts.service import serve

    descriptor = connection.detach()
    try:
        serve(PipeStream(descriptor, descriptor), relay_folder)
    except AdvisorError as error:
        say(error.message)
