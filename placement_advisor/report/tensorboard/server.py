"""Runs TensorBoard as a child process that answers only requests addressed to this machine.

A stranger's page, open in a browser here, can have its own name lead to this machine (DNS
rebinding) and would read what TensorBoard shows; such requests name another host, and are
refused. The child runs this module and ends with the command.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from placement_advisor.errors import AdvisorError
from placement_advisor.processes.children import Tail
from placement_advisor.processes.orphan_guard import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Process = subprocess.Popen[bytes]
    import argparse
    from collections.abc import Iterable

    from placement_advisor.report.tensorboard.plugin import App, Environ, Start


# It takes 10 s where TensorFlow is installed and nothing else runs.
_START_LIMIT_S = 120.0
_ANSWER_LIMIT_S = 20.0
_END_LIMIT_S = 5.0
_POLL_S = 0.1
_SERVER = "placement_advisor.report.tensorboard.server"


@contextlib.contextmanager
def tensorboard(logdir: Path, host: str, port: int) -> Iterator[tuple[str, Process]]:
    """Serve a log directory while the block runs; give the address, which answers, and the process.

    Port 0 takes any that is free.

    Raises:
        AdvisorError: the port is taken, or TensorBoard does not start.
    """
    port = _free_port(host, port)
    command = [sys.executable, "-P", "-m", _SERVER, "--logdir", str(logdir)]
    command += ["--host", host, "--port", str(port)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,  # If the command is killed; else it is ended below.
    )
    assert process.stdout is not None
    printed = Tail(process.stdout)
    try:
        _wait_for(host, port, process, printed, shlex.join(command))
        yield f"http://{_in_address(host)}:{port}/", process
    finally:
        _end(process)


def _free_port(host: str, port: int) -> int:
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            found: int = probe.getsockname()[1]
    except OSError as error:
        raise AdvisorError(
            f"cannot listen on port {port} of {host}: {error.strerror}",
            hint="choose another one with --port; 0 takes any that is free",
        ) from None
    return found


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _wait_for(host: str, port: int, process: Process, printed: Tail, command: str) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(host, port):
            return
        time.sleep(_POLL_S)
    _end(process)
    raise AdvisorError(
        f"TensorBoard did not start\nIt last printed:\n{printed.text().strip()}",
        hint=f"see whether it does alone: {command}",
    )


def _answers(host: str, port: int) -> bool:
    # Not by urllib, which asks a proxy where one is set.
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_LIMIT_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/data/plugins_listing")
        return connection.getresponse().status == HTTPStatus.OK
    return False


def _end(process: Process) -> None:
    """End it with whatever it has started: they are a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_LIMIT_S)


_REFUSAL = b"Ask for localhost, for an address, or for the name that --host was given.\n"


def for_this_machine(answer: App, host: str) -> App:
    """Return what answers as before where an address, localhost or ``host`` is asked for."""

    def answer_or_refuse(environ: Environ, start: Start) -> Iterable[bytes]:
        if _is_this_machine(environ.get("HTTP_HOST", ""), host):
            return answer(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [_REFUSAL]

    return answer_or_refuse


def _is_this_machine(asked: str, host: str) -> bool:
    try:
        name = urlsplit(f"//{asked}").hostname or ""
        if name in ("localhost", host.lower()):
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def main() -> None:
    """Serve with TensorBoard's own options, of which `--host` and `--port` must be given."""
    from tensorboard import default, main_lib, program

    def server(answer: App, flags: argparse.Namespace) -> Any:
        return program.WerkzeugServer(for_this_machine(answer, flags.host), flags)

    main_lib.global_init()
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    board.configure(sys.argv)
    sys.exit(board.main())


if __name__ == "__main__":
    main()
