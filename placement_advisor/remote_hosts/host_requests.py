"""Which hosts an analysis is to use, and how many devices of each: in words, or in a file.

The words are those of Horovod and of MPI: ``a:2,b:2``, and ``a slots=2`` on a line of a file. An
address behind them, ``a:2@10.0.0.5``, is where other hosts reach this one, if not by its name. With
a port, ``a:2@10.0.0.5:7600`` or ``a:2@[2001:db8::5]:7600``, a service waits there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files import untrusted
from placement_advisor.files.untrusted import shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Judgement: a line for each host of the largest machine takes less.
_MOST_BYTES = 1_000_000
# More than any machine has; a port number is taken for a count else.
_MOST_DEVICES = 1_024
# What no launcher takes for an option, and what `ssh` and device names can hold.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_HOST = re.compile(rf"(?P<name>{_NAME}):(?P<count>[0-9]{{1,9}})(@(?P<where>[][A-Za-z0-9_.:%-]+))?")
# Without brackets, what has more than one colon is an IPv6 address.
_WHERE = re.compile(
    r"(\[(?P<bracketed>[A-Za-z0-9.:%_-]+)\]|(?P<plain>[A-Za-z0-9_.%-]+))(:(?P<port>[0-9]{1,5}))?"
    r"|(?P<bare>[A-Za-z0-9_.:%-]*:[A-Za-z0-9_.:%-]*:[A-Za-z0-9_.:%-]*)"
)
_PORTS = range(1, 1 << 16)
_LINE = re.compile(rf"(?P<name>{_NAME})\s+slots\s*=\s*(?P<count>[0-9]{{1,9}})(?P<where>)")
_FORM = "write it as NAME:DEVICES, as in a:2, a:2@10.0.0.5 or a:2@10.0.0.5:7600"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """A host, how many devices of it are asked for, and its address if that is not its name.

    At a ``port`` of that address a service waits; without one it is started by its name.
    """

    name: str
    devices: int
    address: str | None = None
    port: int | None = None

    @property
    def words(self) -> str:
        """The host as `parse_hosts` reads it."""
        where = "" if self.address is None else f"@[{self.address}]"
        port = "" if self.port is None else f":{self.port}"
        return f"{self.name}:{self.devices}{where}{port}"


def parse_hosts(words: str) -> tuple[HostRequest, ...]:
    """Read the words of ``--hosts``, as in ``a:2,b:2``.

    Raises:
        AdvisorError: they name no hosts, one twice, or no devices.
    """
    return _distinct(_host(f"--hosts {words}", word.strip(), _HOST) for word in words.split(","))


def read_hostfile(path: Path) -> tuple[HostRequest, ...]:
    """Read a file with a host on each line: ``a slots=2`` or ``a:2``; ``#`` begins a comment.

    Raises:
        AdvisorError: it cannot be read, names no hosts, one twice, or no devices.
    """
    try:
        text = untrusted.read_plain(path, _MOST_BYTES).decode()
    except OSError as error:
        raise AdvisorError(f"--hostfile {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AdvisorError(f"--hostfile {path}: not a text file") from None
    lines = ((i, line.partition("#")[0].strip()) for i, line in enumerate(text.splitlines(), 1))
    found = _distinct(
        _host(f"--hostfile {path}, line {number}", line, _LINE, _HOST)
        for number, line in lines
        if line
    )
    if not found:
        raise AdvisorError(f"--hostfile {path}: names no host", hint="write lines as a slots=2")
    return found


def _host(where: str, words: str, *forms: re.Pattern[str]) -> HostRequest:
    found = next(filter(None, (form.fullmatch(words) for form in forms)), None)
    if found is None:
        raise AdvisorError(
            f"{where}: {shown(words)} is not a host with a number of devices", hint=_hint(words)
        )
    count = int(found["count"])
    if not 1 <= count <= _MOST_DEVICES:
        raise AdvisorError(
            f"{where}: {found['name']} cannot have {count} devices",
            hint=f"ask for 1 to {_MOST_DEVICES:,} of each host",
        )
    address, port = _where(where, found["where"]) if found["where"] else (None, None)
    return HostRequest(name=found["name"], devices=count, address=address, port=port)


def _where(where: str, words: str) -> tuple[str, int | None]:
    """Return an address, and its port if it has one."""
    found = _WHERE.fullmatch(words)
    port = None if found is None or found["port"] is None else int(found["port"])
    if found is None or (port is not None and port not in _PORTS):
        raise AdvisorError(
            f"{where}: {shown(words)} is no address",
            hint="as in 10.0.0.5, 10.0.0.5:7600, 2001:db8::5, [2001:db8::5]:7600",
        )
    return found["bracketed"] or found["plain"] or found["bare"], port


def _hint(words: str) -> str:
    if "@" in words.partition(":")[0]:
        return f"{_FORM}; whom to log in as is said by --launch 'ssh ME@{{host}}'"
    return _FORM


def _distinct(hosts: Iterable[HostRequest]) -> tuple[HostRequest, ...]:
    found = tuple(hosts)
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise AdvisorError(
                f"host {name} is named twice", hint="ask for all of its devices at once"
            )
    return found
