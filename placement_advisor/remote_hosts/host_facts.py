"""What a host is and has, whether its versions fit, and its place in the network."""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import os
import platform
import socket
import struct
import threading
import time
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_uint, c_void_p, string_at
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.errors import TestbedError
from placement_advisor.machine import nvidia, this_machine
from placement_advisor.processes.children import available_memory_bytes

if TYPE_CHECKING:
    from placement_advisor.machine.this_machine import OtherWork


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host says of itself when an analysis begins there.

    ``host_name`` is its own name for itself. ``cores`` has one logical CPU for each device that can
    have a core of its own. ``visible_gpus`` is how many TensorFlow may see, ``gpus`` what the
    driver's tools say. ``available_memory_bytes`` is what was free. ``fingerprint`` differs where
    the processor, the cores or the kernel do.
    """

    host_name: str
    cores: tuple[int, ...]
    visible_gpus: int
    gpus: nvidia.Gpus
    available_memory_bytes: int
    fingerprint: str


def find_host_facts() -> HostFacts:
    """Find out about this machine, without TensorFlow."""
    return HostFacts(
        host_name=socket.gethostname(),
        cores=this_machine.usable_cores(),
        visible_gpus=this_machine.gpu_count(),
        gpus=nvidia.find_gpus(),
        available_memory_bytes=available_memory_bytes(),
        fingerprint=this_machine.fingerprint((os.uname().release,)),
    )


def user_name() -> str:
    """Return the user's name, or number where there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # As in a container that takes any number.
        return str(os.geteuid())


def tensorflow_version() -> str | None:
    """Return the version of TensorFlow that is installed here, None if there is none."""
    try:
        return version("tensorflow")
    except PackageNotFoundError:
        return None


_WORDS = {"advisor": "placement-advisor {}", "tensorflow": "TensorFlow {}"}


def own_versions() -> dict[str, object]:
    """Return what this host tells others: a plain object, so that any two versions can."""
    return {
        "advisor": __version__,
        "tensorflow": tensorflow_version(),
        "python": platform.python_version(),
    }


def check_versions(host: str, theirs: object) -> dict[str, object]:
    """Return what a host told of its versions, if they are those that this one has.

    Raises:
        TestbedError: it has others; the error names both.
    """
    if not isinstance(theirs, dict):
        raise TestbedError(f"host {host}: what answers there is no worker of placement-advisor")
    ours = own_versions()
    for what, words in _WORDS.items():
        there, here = theirs.get(what), ours[what]
        if there != here:
            # TensorFlow itself lets two versions run together without a word.
            raise TestbedError(
                f"host {host} has {_said(words, there)}, this machine {_said(words, here)}",
                hint="install one version on both",
            )
    return theirs


def _said(words: str, version: object) -> str:
    return f"no {words.format('').strip()}" if version is None else words.format(version)


# A relay tries for five seconds to reach the other one.
_LIMIT_S = 8.0
_HEAD = struct.Struct(">Q")
_SMALL_BYTES = 1
# Fills some dozens of the largest frames in use, 9,000 bytes; at 1 Mbit/s it takes two seconds.
_LARGE_BYTES = 1 << 18
_CHUNK_BYTES = 1 << 16
# The least of these: the first ones wait for connections to be made.
_SMALL_ONES = 5
_ANSWER = b"k"
# Where addresses begin, and how long they are, in what the kernel calls one; ip(7), ipv6(7).
_ADDRESS_AT = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}
_FAMILY = struct.Struct("=H")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlace:
    """Where a host is in the network, and whether it is free to work.

    ``interface`` has the address that was asked for, with frames of ``mtu_bytes`` at most; None
    where the host has no such address itself. ``load`` is what other processes do there now.
    """

    interface: str | None
    mtu_bytes: int | None
    load: OtherWork
    has_private_network: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WayTried:
    """What came of messages from one host to another.

    ``small_ns`` is how long a small one and its answer took at least, None if none came;
    ``large_passes`` whether one of many frames arrived.
    """

    small_ns: int | None
    large_passes: bool


def network_place(address: str) -> NetworkPlace:
    """Find out about this host and an address, or a name, of it."""
    interface = interface_of(address)
    return NetworkPlace(
        interface=interface,
        mtu_bytes=None if interface is None else _mtu_bytes(interface),
        load=this_machine.other_work(),
        has_private_network=this_machine.can_have_private_network(),
    )


def answer_at(address: str, port: int) -> None:
    """Answer whoever sends bytes to this port, in the background, as long as this process lives."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.create_server((address, port), family=family)
    threading.Thread(target=_answer_each, args=(listening,), daemon=True).start()


def try_way(address: str, port: int) -> WayTried:
    """Send bytes to where another host answers."""
    small_ns = None
    try:
        with socket.create_connection((address, port), _LIMIT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_LIMIT_S)
            small_ns = min(_time_ns(connection, _SMALL_BYTES) for _ in range(_SMALL_ONES))
            _time_ns(connection, _LARGE_BYTES)
    except OSError:
        return WayTried(small_ns=small_ns, large_passes=False)
    return WayTried(small_ns=small_ns, large_passes=True)


def interface_of(address: str) -> str | None:
    """Return the interface that has an address, or a name's, on this host; None if none has it."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    wanted = {ipaddress.ip_address(str(place[0]).partition("%")[0]).packed for *_, place in found}
    return next((name for name, own in _own_addresses() if own in wanted), None)


class _Address(Structure):
    """An address of this host; getifaddrs(3)."""


_Address._fields_ = [
    ("next", POINTER(_Address)),
    ("name", c_char_p),
    ("flags", c_uint),
    ("address", c_void_p),
]


def _own_addresses() -> list[tuple[str, bytes]]:
    """Return interfaces with their addresses, one after the other."""
    libc = CDLL(None)
    first = POINTER(_Address)()
    if libc.getifaddrs(byref(first)) != 0:
        return []
    found = []
    try:
        each = first
        while each:
            at = each.contents.address
            family = _FAMILY.unpack(string_at(at, _FAMILY.size))[0] if at else None
            if family in _ADDRESS_AT:
                begin, size = _ADDRESS_AT[family]
                found.append((each.contents.name.decode(), string_at(at + begin, size)))
            each = each.contents.next
    finally:
        libc.freeifaddrs(first)
    return found


def _mtu_bytes(interface: str) -> int | None:
    try:
        return int(Path(f"/sys/class/net/{interface}/mtu").read_text())
    except OSError:
        return None


def _time_ns(connection: socket.socket, size_bytes: int) -> int:
    """Return how long it takes to send so many bytes and have the answer."""
    begun_ns = time.perf_counter_ns()
    connection.sendall(_HEAD.pack(size_bytes) + bytes(size_bytes))
    if connection.recv(1) != _ANSWER:
        raise ConnectionResetError
    return time.perf_counter_ns() - begun_ns


def _answer_each(listening: socket.socket) -> None:
    with listening:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """Take as many bytes as each message says first, and answer with one."""
    with contextlib.suppress(OSError), connection, connection.makefile("rb") as reading:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(head := reading.read(_HEAD.size)) == _HEAD.size:
            left = _HEAD.unpack(head)[0]
            while left:
                piece = reading.read(min(left, _CHUNK_BYTES))
                if not piece:
                    return
                left -= len(piece)
            connection.sendall(_ANSWER)
