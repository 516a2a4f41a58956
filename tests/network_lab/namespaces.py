"""Namespaces that last as long as the process that made them: one for each host of a lab.

A *keeper* is a process that holds a network, a mount and a host name of its own and does nothing
until its standard input ends. Nothing is named outside of it, so that labs do not collide and
nothing is left behind when a test run is killed. Who is not root gets a user namespace first, in
which all others lie.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

# Where tools for networks are, and who is not root often does not look.
SYSTEM_PATH = "/usr/sbin:/sbin"
_TOOLS = ("ip", "tc", "unshare", "nsenter", "mount", "hostname")
_READY = "ready"
_END_LIMIT_S = 10.0
_POLL_INTERVAL_S = 0.01
# What a host sees as its own: its interfaces under /sys as under /proc, the names of all hosts, its
# name. Sysfs cannot be mounted everywhere, and few look there. Interfaces get no IPv6, whose
# announcements would be traffic that nobody asked for.
_FURNISH = f"""
set -e
PATH=$PATH:{SYSTEM_PATH}
mount --make-rprivate /
mount -t sysfs sysfs /sys 2>/dev/null || true
mount --bind "$1" /etc/hosts
hostname "$2"
ip link set lo up
no_ipv6=/proc/sys/net/ipv6/conf/default/disable_ipv6
[ ! -e $no_ipv6 ] || echo 1 > $no_ipv6
echo {_READY}
exec cat
"""
# Runs a command on a host: where that is, is in a file beside this one, named as the host is.
# A process cannot enter the user namespace in which it is.
ENTER = f"""#!/bin/sh
PATH=$PATH:{SYSTEM_PATH}
keeper=$(cat "${{0%/*}}/$1") || exit 1
shift
user=
[ "$(readlink /proc/$keeper/ns/user)" = "$(readlink /proc/self/ns/user)" ] ||
    user="--user --preserve-credentials"
exec nsenter --target "$keeper" $user --mount --uts --net -- \\
    sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""


class RefusedError(Exception):
    """The system gives no such namespaces, or has no tools to make them."""


class Keeper:
    """A process that holds namespaces."""

    def __init__(self, command):
        """Start it, and wait until its namespaces are there.

        Raises:
            RefusedError: they are not to be had.
        """
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # A Ctrl-C is the lab's to handle.
        )
        if self._process.stdout.readline().strip() != _READY:
            _, said = self._process.communicate()
            raise RefusedError(f"this system allows no lab of namespaces: {said.strip()}")
        self._space = _host_name_space(self.pid)
        # Whatever has this one is ended in the end.
        assert self._space not in (None, _host_name_space(os.getpid())), "not a space of its own"

    @property
    def pid(self):
        """Process id, by which the namespaces can be entered."""
        return self._process.pid

    def inmates(self):
        """Return the ids of all other processes here.

        They are told by the space of their host name: one that has moved to a network of its own
        is still in it.
        """
        return tuple(
            pid
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal()
            and (pid := int(entry.name)) != self.pid
            and _host_name_space(pid) == self._space
        )

    def end_inmates(self):
        """End them, and what they start meanwhile."""
        deadline = time.monotonic() + _END_LIMIT_S
        while (inmates := self.inmates()) and time.monotonic() < deadline:
            for pid in inmates:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_INTERVAL_S)

    def close(self):
        """Let go of the namespaces, and end what still runs in them."""
        self.end_inmates()
        self._process.kill()
        self._process.communicate()


class UserSpace:
    """Where keepers are made: as root, or as root of a user namespace."""

    def __init__(self):
        """Find out, and make that namespace if it is needed.

        Raises:
            RefusedError: it is not to be had.
        """
        path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
        missing = [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]
        if missing:
            raise RefusedError(f"no {' or '.join(missing)} on this system")
        self._keeper = None
        self._inside = ()
        if os.geteuid() != 0:
            script = f"echo {_READY}; exec cat"
            made = ("unshare", "--user", "--map-root-user", "--uts")
            self._keeper = Keeper([*made, "sh", "-c", script])
            target = str(self._keeper.pid)
            self._inside = ("nsenter", "--target", target, "--user", "--preserve-credentials")

    def keeper(self, name, names_file):
        """Make namespaces for a host of that name; the file has the addresses of all names.

        Raises:
            RefusedError: they are not to be had.
        """
        made = (*self._inside, "unshare", "--net", "--mount", "--uts")
        return Keeper([*made, "sh", "-c", _FURNISH, "sh", str(names_file), name])

    def close(self):
        """Let go of the user namespace."""
        if self._keeper is not None:
            self._keeper.close()


def _host_name_space(pid):
    with contextlib.suppress(OSError):  # It has ended, or is another user's.
        return str(Path(f"/proc/{pid}/ns/uts").readlink())
    return None
