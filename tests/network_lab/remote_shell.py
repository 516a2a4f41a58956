"""A login without a password, as ssh is one, over the cables of the lab: what starts services.

`remote_shell.py serve CORE` waits on a host for logins; `remote_shell.py HOST advisor …` runs that
command there, on that core, with its standard streams here. When the line goes silent neither side
is told; when one side ends, the other one sees the end of what it reads. Left out: whatever keeps
strangers away, and the status that the command ends with.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

_PORT = 2_222
_CHUNK_BYTES = 65_536
# What is called by this name is the command as it is here.
_OURS = "advisor"
_COMMAND = (sys.executable, "-P", "-m", "placement_advisor.cli.app")


def launcher(folder):
    """Make a program that logs in to `{host}` and runs a command there; return words for it."""
    program = folder / "login"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {Path(__file__)} "$@"\n')
    program.chmod(0o755)
    return f"{program} {{host}}"


def _serve(core):
    os.sched_setaffinity(0, {core})
    with socket.create_server(("", _PORT)) as listening:
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_run, args=(connection,), daemon=True).start()


def _run(connection):
    with connection:
        line = b""
        while not line.endswith(b"\n"):
            line += connection.recv(1)  # What follows is the command's to read.
        name, *words = json.loads(line)
        program = _COMMAND if name == _OURS else (shutil.which(name) or name,)
        streams = {"stdin": connection, "stdout": connection}
        subprocess.run([*program, *words], **streams, start_new_session=True, check=False)
        with contextlib.suppress(OSError):  # Its other end may be gone.
            connection.shutdown(socket.SHUT_RDWR)


def _log_in(host, command):
    try:
        connection = socket.create_connection((host, _PORT))
    except OSError as error:
        sys.exit(f"no way to {host}: {error.strerror}")
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(json.dumps(command).encode() + b"\n")
        threading.Thread(target=_send_input, args=(connection,), daemon=True).start()
        while data := connection.recv(_CHUNK_BYTES):
            while data:
                data = data[os.write(1, data) :]


def _send_input(connection):
    while data := os.read(0, _CHUNK_BYTES):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(int(sys.argv[2]))
    else:
        _log_in(sys.argv[1], sys.argv[2:])
