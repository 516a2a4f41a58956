"""Machines that you do not have, described by a short text such as `2xV100-NVLink`.

Devices of one host share PCIe switches, sockets and lanes by their slots.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import permutations
from statistics import harmonic_mean
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import shown
from placement_advisor.machine.devices import (
    Basis,
    Cluster,
    CopyWork,
    Device,
    Dispatch,
    Link,
    Sharing,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_PER_SWITCH = 2
_PER_SOCKET = 4
_MESH = 8
# Between the like of two fours, and among a four, in links, where there are six for each device.
_DOUBLE = frozenset({(0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5)})


class NvlinkWiring(StrEnum):
    """Which devices of a host NVLink joins: all, pairs, or those of a hybrid cube mesh."""

    ALL = "all"
    BRIDGES = "bridges"
    MESH = "mesh"
    DOUBLE_MESH = "double mesh"


# More than any one machine holds; candidates for more devices would not be searched in time.
MAX_DEVICES = 64
# Far above every description that makes sense, far below what slows the matching of names.
MAX_TEXT_CHARS = 1_000
ASSUMED_HOST = "Xeon8280"
LEVELS_ARE_COMPARED = (
    "levels of hosts are for `advisor compare-hardware`; here every device is simulated, so give "
    "a single host, or hosts of one level as text"
)

_HINT = (
    "write for example 2xV100-NVLink, 4xA100, GTX1080Ti+GTX1080-PCIe3 or "
    "2x(4xV100-NVLink)-Ethernet100, or give a cluster file"
)
# How the NVLinks of eight such devices join them, where no switch does.
_MESHES = {"NVLink1": "mesh", "NVLink2": "double mesh"}
_ETHERNET, _INFINIBAND = "Ethernet", "InfiniBand"
_SEVERAL_HOSTS = re.compile(r"([0-9]+)x\((.*)\)(?:-(.*))?", re.DOTALL)
# How a machine begins, and no preset does; and several equal wires that are one uplink.
_MACHINE, _WIRES = re.compile(r"[0-9]+x|[^+]+[+]", re.DOTALL), re.compile(r"^[0-9]+x")


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """A device or a host, as an end of links."""

    name: str
    host: str
    slot: int = 0

    @property
    def is_host(self) -> bool:
        return self.name == self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wiring:
    """Names of the links between peers, to their host, and between hosts, and a host's wires.

    ``lanes`` joins peers that have no NVLink. A host has so many ``devices``.
    """

    peer: str
    lanes: str
    host: str
    network: str | None
    devices: int
    nvlink: NvlinkWiring
    per_switch: int

    def link(self, source: _End, target: _End) -> Link:
        """Return the link from one end to another."""
        if source.host == target.host:
            link = self._within_host(source, target)
            return replace(link, latency_ns=link.latency_ns + _notice_ns())
        assert self.network is not None
        legs = [self.network, *(self.host for end in (source, target) if not end.is_host)]
        tables = [hardware_figures()["links"][name] for name in legs]
        notices = len(legs) - 1
        return Link(
            source=source.name,
            target=target.name,
            latency_ns=sum(table["latency_ns"] for table in tables) + notices * _notice_ns(),
            bandwidth_bytes_per_s=harmonic_mean(
                [table["bandwidth_bytes_per_s"] for table in tables]
            )
            / len(tables),
            basis=Basis.ASSUMED,
            channel=f"{self.network} out of {source.host}",
            request_ns=hardware_figures()["links"][self.network]["latency_ns"],
        )

    def _within_host(self, source: _End, target: _End) -> Link:
        ends = {"source": source.name, "target": target.name}
        host = source.host
        if source.is_host:
            into = self.into_switch(target.slot)
            return link_preset(self.host, **ends, channel=into and f"PCIe into {into} of {host}")
        lanes = f"{_family(self.lanes)} out of {self._out_of(source)}"
        if target.is_host:
            return link_preset(self.host, **ends, channel=lanes)
        if _family(self.peer) != "PCIe":
            width = self.nvlink_width(source.slot, target.slot)
            if width:
                link = link_preset(self.peer, **ends)
                own = f"{_family(self.peer)} out of {source.name}"
                return replace(
                    link,
                    bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * width,
                    # Else all copies of a device queue for one wire.
                    channel=None if self._is_mesh else own,
                )
        link = link_preset(self.lanes, **ends, channel=lanes)
        if self.into_switch(source.slot) == self.into_switch(target.slot):
            return replace(link, channel=f"{_family(self.lanes)} out of {source.name}")
        if self.socket(source.slot) == self.socket(target.slot):
            return link
        between = hardware_figures()["sockets"]
        return replace(
            link,
            bandwidth_bytes_per_s=min(link.bandwidth_bytes_per_s, between["bandwidth_bytes_per_s"]),
            channel=f"sockets of {host} out of {self.socket(source.slot)}",
        )

    def _out_of(self, source: _End) -> str:
        """Return what the lanes of a device to its host leave."""
        switch = self.into_switch(source.slot)
        return source.name if switch is None else f"{switch} of {source.host}"

    @property
    def _is_tree(self) -> bool:
        return self.devices > _PER_SOCKET

    @property
    def _is_mesh(self) -> bool:
        is_mesh = self.nvlink in (NvlinkWiring.MESH, NvlinkWiring.DOUBLE_MESH)
        return is_mesh and _PER_SOCKET < self.devices <= _MESH

    def into_switch(self, slot: int) -> str | None:
        """Return the name of the switch that a device hangs on, None if it hangs on no other."""
        return f"switch {slot // self.per_switch}" if self._is_tree else None

    def socket(self, slot: int) -> int:
        """Return the number of the socket that a device hangs on."""
        return slot // _PER_SOCKET if self._is_tree else 0

    def nvlink_width(self, one: int, other: int) -> float:
        """Return how much of what their link gives two devices have; 0 if NVLink joins them not."""
        low, high = sorted((one, other))
        if self.nvlink is NvlinkWiring.BRIDGES:
            return float(low % _PER_SWITCH == 0 and high == low + 1)
        if not self._is_mesh:
            return 1.0
        if low // _PER_SOCKET != high // _PER_SOCKET and high - low != _PER_SOCKET:
            return 0.0
        if self.nvlink is NvlinkWiring.MESH:
            return 1.0
        # The figure of such a link is that of two.
        return 1.0 if (low, high) in _DOUBLE else 0.5


def read_hardware(text: str) -> Cluster:
    """Return the machine that ``text`` describes; everything about it is assumed.

    Devices are `GPU:0`, `GPU:1` and so on, each with the `CPU:n` of its host. A description is a
    sum of devices with counts, then the link between them: `2xGTX1080Ti+GTX1080-PCIe3`. Without a
    link it is the first that all have; `NVLink` and `PCIe` mean the devices' own generation.
    Several equal hosts stand in brackets: `2x(4xV100-NVLink)-Ethernet100`. Case does not matter.
    Where a card's name looks like a card and its link, it is the card: `V100-PCIe`.

    Raises:
        AdvisorError: the text says something else, or names what `hardware.toml` does not hold.
    """
    check_length(text)
    hosts, inner, network = 1, text, None
    if several := _SEVERAL_HOSTS.fullmatch(text):
        hosts, inner = read_count(text, several[1]), several[2]
        if "(" in inner and several[3]:
            raise refused(text, LEVELS_ARE_COMPARED)
        network = network_named(text, several[3] or "")
    presets, peer_link = _host_devices(text, inner)
    if hosts * len(presets) > MAX_DEVICES:
        raise refused(text, f"{hosts * len(presets)} devices; there may be 1 to {MAX_DEVICES}")
    wiring = _wiring(text, presets, peer_link, network)

    host_names = [f"CPU:{i}" for i in range(hosts)]
    devices = [
        device_preset(preset, name=f"GPU:{i}", host=host_names[i // len(presets)])
        for i, preset in enumerate(presets * hosts)
    ]
    if network is not None:
        here, there = devices[: len(presets)], devices[len(presets) :]
        devices = [*here, *(_far(device, network) for device in there)]
    launch_ns = {device.name: device.launch_overhead_ns for device in devices}
    ends = [_End(name=name, host=name) for name in host_names]
    ends += [
        _End(name=device.name, host=device.host or device.name, slot=i % len(presets))
        for i, device in enumerate(devices)
    ]
    return Cluster(
        devices=tuple(devices),
        links=tuple(
            _launched(wiring.link(source, target), launch_ns)
            for source, target in permutations(ends, 2)
        ),
        hosts=tuple(device_preset(ASSUMED_HOST, name=name) for name in host_names),
        dispatch=Dispatch(step_overhead_ns=hardware_figures()["dispatch"]["step_overhead_ns"]),
        sharing=Sharing(exchange_loss=hardware_figures()["exchange"]["loss"]),
    )


def device_preset(preset: str, *, name: str, host: str | None = None) -> Device:
    """Return a device or host with the published figures of ``preset``.

    Raises:
        AdvisorError: there is no such preset.
    """
    known = hardware_figures()["devices"] | hardware_figures()["hosts"]
    aliases = {alias: name for name, table in known.items() for alias in table.get("aliases", ())}
    table = known.get(aliases.get(preset, preset))
    if table is None:
        raise AdvisorError(f"unknown device preset {shown(preset)}; {there_are(known, preset)}")
    sheet = hardware_figures()["gpus"][table["gpu"]] if "gpu" in table else table
    return Device(
        name=name,
        kind=table["kind"],
        host=host,
        peak_flops_per_s=sheet["peak_flops_per_s"],
        matrix_flops_per_s=sheet.get("tf32_flops_per_s"),
        memory_bandwidth_bytes_per_s=sheet["memory_bandwidth_bytes_per_s"],
        memory_bytes=table["memory_bytes"],
        # That of a GPU is its host's, whichever card it is.
        launch_overhead_ns=table.get(
            "launch_overhead_ns", hardware_figures()["launches"]["overhead_ns"]
        ),
        # Streams are asynchronous: TensorFlow queues a kernel and goes on.
        launches_ahead=table["kind"] == "GPU",
        gpu=table.get("gpu"),
    )


def link_preset(preset: str, *, source: str, target: str, channel: str | None = None) -> Link:
    """Return a link with the published figures of ``preset``.

    Raises:
        AdvisorError: there is no such preset.
    """
    known = hardware_figures()["links"]
    if preset not in known:
        raise AdvisorError(f"unknown link preset {shown(preset)}; {there_are(known, preset)}")
    return Link(
        source=source,
        target=target,
        latency_ns=known[preset]["latency_ns"],
        bandwidth_bytes_per_s=known[preset]["bandwidth_bytes_per_s"],
        basis=Basis.ASSUMED,
        channel=channel,
    )


def named_presets(text: str) -> tuple[str, ...]:
    """Return the presets that a user's words mean: a device, a link, or all of a machine.

    A machine is written as `read_hardware` takes it, also in levels of hosts: its devices, the link
    between them, and the networks between its hosts, the inner one first.

    Raises:
        AdvisorError: there are none.
    """
    links = hardware_figures()["links"]
    check_length(text)
    if preset := _device_words().get(text.casefold()) or _same_word(text, links):
        return (preset,)
    if not _MACHINE.match(text):
        known = [*hardware_figures()["devices"], *links]
        raise AdvisorError(f"no GPU and no link {shown(text)}; {there_are(known, text)}")
    inner, between = text, list[str]()
    while several := _SEVERAL_HOSTS.fullmatch(inner):
        inner, network = several[2], _WIRES.sub("", several[3] or "")
        between.insert(0, network_named(text, network, rdma=True))
    devices, link = _host_devices(text, inner)
    peer = _wiring(text, devices, link, None).peer
    return tuple(dict.fromkeys([*devices, peer, *between]))


def there_are(known: Iterable[str], word: str) -> str:
    """Return which names there are, those first that are most similar to the word."""

    def similarity(name: str) -> float:
        return SequenceMatcher(None, word.casefold(), name.casefold()).ratio()

    return f"there are {', '.join(sorted(known, key=similarity, reverse=True))}"


def check_length(text: str) -> None:
    """Check that a description is not too long to be matched.

    Raises:
        AdvisorError: it is.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise refused(text, f"longer than {MAX_TEXT_CHARS:,} characters")


def _host_devices(text: str, inner: str) -> tuple[list[str], str | None]:
    """Return the presets of one host's devices and the word for the link between them."""
    known, words = hardware_figures()["devices"], _device_words()
    presets: list[str] = []
    link = None
    for term in inner.split("+"):
        if link is not None:
            raise refused(text, f"more devices after the link {shown(link)}; it stands at the end")
        digits, x, device = term.partition("x")
        if not (x and digits.isascii() and digits.isdigit()):
            digits, device = "1", term
        device, link = _split_link(device)
        preset = words.get(device.casefold())
        if preset is None:
            # Behind the first hyphen may be a link.
            card = device.partition("-")[0]
            raise refused(text, f"unknown device {shown(device)}; {there_are(known, card)}")
        presets += [preset] * read_count(text, digits)
    return presets, link


def _split_link(term: str) -> tuple[str, str | None]:
    """Split a device from the link behind it. Where devices share a beginning, the longest wins."""
    folded = term.casefold()
    for device in sorted(_device_words(), key=len, reverse=True):
        if folded == device:
            return term, None
        if folded.startswith(f"{device}-"):
            return device, term[len(device) + 1 :]
    return term, None


@cache
def _device_words() -> dict[str, str]:
    """Return the preset that each word for a device means, words in lower case."""
    presets = hardware_figures()["devices"].items()
    return {
        word.casefold(): name
        for name, table in presets
        for word in (name, *table.get("aliases", ()))
    }


def _wiring(text: str, presets: list[str], link: str | None, network: str | None) -> _Wiring:
    """Return the links of a machine; the devices must all have the one between them."""
    devices = hardware_figures()["devices"]
    common = [
        name
        for name in devices[presets[0]]["links"]
        if all(name in devices[preset]["links"] for preset in presets)
    ]
    if link is None:
        link = common[0]
    peer = next((name for name in common if _means(link, name)), None)
    if peer is None:
        if _same_word(link, networks(rdma=True)):
            raise refused(text, f"{link} joins hosts, not devices: 2x(1x{presets[0]})-{link}")
        names = " and ".join(dict.fromkeys(presets))
        raise refused(text, f"no link {shown(link)} joins {names}; {there_are(common, link)}")
    # The lanes to the host are those to the peers, without what staging or a card's switch costs.
    lanes = peer if _family(peer) == "PCIe" else next(x for x in common if _family(x) == "PCIe")
    is_bridge = "most_devices" in hardware_figures()["links"][peer]
    return _Wiring(
        peer=peer,
        lanes=lanes,
        host=lanes.partition("-")[0],
        network=network,
        devices=len(presets),
        nvlink=NvlinkWiring.BRIDGES if is_bridge else NvlinkWiring(_MESHES.get(peer, "all")),
        per_switch=_PER_SWITCH * max(devices[preset].get("gpus_of_card", 1) for preset in presets),
    )


def network_named(text: str, word: str, *, rdma: bool = False) -> str:
    """Return the link between hosts that a word of a description means.

    With ``rdma`` it may be one that NCCL uses, and TensorFlow's own copies do not.

    Raises:
        AdvisorError: it means none.
    """
    network = _same_word(word, networks(rdma=rdma))
    if network is None:
        known = there_are(networks(rdma=rdma), word)
        raise refused(text, f"a network joins hosts, not {shown(word)}; {known}")
    return network


def networks(*, rdma: bool) -> list[str]:
    """Return the links between hosts; with ``rdma`` those as well that NCCL alone uses."""
    families = (_ETHERNET, _INFINIBAND) if rdma else (_ETHERNET,)
    return [name for name in hardware_figures()["links"] if _family(name) in families]


def _notice_ns() -> int:
    """Return how long after the end of a copy from or to a GPU its reader is told."""
    notice_ns: int = hardware_figures()["copies"]["notice_ns"]
    return notice_ns


def _launched(link: Link, launch_ns: Mapping[str, int]) -> Link:
    """Return the link with what its ends do for a copy: each GPU's host launches it, as an op."""
    return replace(
        link,
        sender=CopyWork(per_copy_ns=launch_ns.get(link.source, 0)),
        receiver=CopyWork(per_copy_ns=launch_ns.get(link.target, 0)),
    )


def _far(device: Device, network: str) -> Device:
    """Return the device as that of a host which is told to start, and says when it is done."""
    message_ns = hardware_figures()["links"][network]["latency_ns"]
    return replace(device, remote_start_ns=message_ns, remote_end_ns=message_ns)


def _family(link: str) -> str:
    """Return the name of a link without its generation and variant: PCIe for PCIe3-K80."""
    return link.partition("-")[0].rstrip("0123456789")


def _means(word: str, link: str) -> bool:
    """Return whether a user who writes ``word`` can mean ``link``."""
    return _same_word(word, (link, link.partition("-")[0], _family(link))) is not None


def _same_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is the word but for case."""
    return next((name for name in known if name.casefold() == word.casefold()), None)


def read_count(text: str, digits: str, most: int = MAX_DEVICES) -> int:
    """Return the number that stands in a description.

    Raises:
        AdvisorError: it is not from 1 to ``most``.
    """
    count = int(digits)
    if not 1 <= count <= most:
        raise refused(text, f"a count of {shown(count)}; it may be 1 to {most:,}")
    return count


def refused(text: str, problem: str) -> AdvisorError:
    """Return the error of a description that cannot be taken, with examples of others."""
    return AdvisorError(f"hardware {shown(text)}: {problem}", hint=_HINT)


@cache
def hardware_figures() -> dict[str, Any]:
    """Return what `hardware.toml` holds, by table and name."""
    path = resources.files("placement_advisor.machine") / "hardware.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
