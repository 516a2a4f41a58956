"""Which testbed this machine can have: the devices, their slots, and why nothing can run, if so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.errors import TestbedError
from placement_advisor.machine import this_machine
from placement_advisor.machine.devices import Device
from placement_advisor.machine.nvidia import Gpus, common_memory, common_name, find_gpus
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Callable


# What a user can do instead of opening ports.
ONE_PROCESS = "--testbed logical-cpus takes one process, which listens on nothing"
_PORTS_ARE_OPEN = (
    "this system allows no private network. Until this run ends, TensorFlow's workers listen "
    "on every interface without authentication. Anyone who reaches them can read and write "
    "your files (--open-ports)"
)

_BUSY = (
    "other work keeps this machine busy: it uses {load}. Everything takes longer, times "
    "vary, and the verdict may stay open"
)


_PORTS_ARE_OPEN_ON_HOSTS = (
    "until this run ends, TensorFlow's workers listen on all networks of the hosts without "
    "authentication. Anyone who reaches them can read and write your files there (--link direct)"
)


_IS_AWAY = (
    "every step waits {away} for the way from here to host {host} and back. This draws all "
    "speed-ups towards 1: run the command on the first host, and call it localhost"
)


class TestbedKind(StrEnum):
    """Where candidates run."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    GPUS = "gpus"
    WORKERS = "workers"
    LOGICAL_CPUS = "logical-cpus"
    HOSTS = "hosts"
    NONE = "none"


class HostLink(StrEnum):
    """How TensorFlow's servers on several hosts reach one another.

    By TLS, through a relay on each, or directly, on the hosts' own network.
    """

    TLS = "tls"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """What a host lends to a testbed: ``slots``, each of which makes a device, all of one kind.

    ``address`` is where the other hosts reach it, ``fingerprint`` tells machines apart that
    compute at different speeds. ``is_here`` says that it is the machine of the command itself.
    ``lends_all`` says that no core is left for anything else, such as its relay. ``gpus`` is what
    the driver there says of its GPUs, None if it lends none.
    """

    name: str
    address: str
    slots: tuple[this_machine.Slot, ...]
    fingerprint: str
    is_here: bool
    lends_all: bool = False
    gpus: Gpus | None = None

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names of its devices."""
        return tuple(f"{self.name}:{i}" for i in range(len(self.slots)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedPlan:
    """What was chosen for this machine; ``not_run`` says why nothing runs, if so.

    ``is_declined``: something could run, and is not to.

    ``load`` is what other processes do, if that is too much for the devices.

    Workers have a network of their own, unless the user accepts ``open_ports``: then whoever
    reaches this machine by network reaches them. ``hosts`` are empty for devices of one machine;
    else they are reached by ``link``, and ``devices`` and ``slots`` are theirs, host by host.
    ``slots`` are empty where one process has all devices.
    ``away_ns`` is the way to the first of them and back, None if it is this machine: steps are
    asked for from here.
    """

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    kind: TestbedKind
    devices: tuple[Device, ...]
    description: str
    slots: tuple[this_machine.Slot, ...] = ()
    stand_in: bool = True
    not_run: str | None = None
    is_declined: bool = False
    open_ports: bool = False
    hosts: tuple[HostShare, ...] = ()
    link: HostLink | None = None
    away_ns: int | None = None
    load: this_machine.OtherWork | None = None

    @property
    def on_gpus(self) -> bool:
        """Whether its devices are GPUs."""
        return self.devices[0].kind == this_machine.GPU

    @property
    def runs_as_is(self) -> bool:
        """Whether the user's step as it is, on this machine, is one of these devices'.

        Where they are GPUs of other hosts, it would have others here, or none.
        """
        return not self.on_gpus or self.away_ns is None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user is to know before anything starts."""
        found = (_PORTS_ARE_OPEN,) if self.open_ports else ()
        if self.link is HostLink.DIRECT:
            found = (_PORTS_ARE_OPEN_ON_HOSTS,)
        if self.away_ns is not None:
            away = format_ns(self.away_ns)
            found = (*found, _IS_AWAY.format(host=self.hosts[0].name, away=away))
        return found if self.load is None else (*found, _BUSY.format(load=self.load))


def plan_testbed(kind: TestbedKind | None, count: int) -> TestbedPlan:
    """Choose a testbed of ``count`` devices for this machine.

    Raises:
        TestbedError: the kind asked for cannot be had here.
    """
    gpus = this_machine.gpu_count()
    if kind is TestbedKind.GPUS and gpus < count:
        raise TestbedError(
            f"--testbed gpus: {count} devices asked for, {gpus} GPUs found",
            hint="use --testbed workers, or fewer --devices",
        )
    if kind is None:
        kind = TestbedKind.GPUS if gpus >= count else TestbedKind.WORKERS
    if kind is TestbedKind.GPUS:
        memory_bytes = common_memory(find_gpus())
        return TestbedPlan(
            kind=kind,
            devices=tuple(
                Device(name=f"GPU:{i}", kind="GPU", memory_bytes=memory_bytes) for i in range(count)
            ),
            stand_in=False,
            description=f"{count} GPUs",
        )
    if kind is TestbedKind.LOGICAL_CPUS:
        return TestbedPlan(
            kind=kind,
            devices=tuple(Device(name=f"cpu:{i}", kind="CPU") for i in range(count)),
            description=f"{count} logical CPUs of one process (shared cores, copies are pointers)",
        )
    devices = tuple(Device(name=f"worker:{i}", kind="CPU") for i in range(count))
    cores = this_machine.usable_cores()
    not_run = None
    if kind is TestbedKind.NONE:
        not_run = "--testbed none: nothing was run"
    elif count > len(cores):
        not_run = (
            f"{count} devices need {count} cores of their own; this machine lets us use "
            f"{len(cores)} (affinity, quota and physical cores counted)"
        )
    return TestbedPlan(
        kind=TestbedKind.NONE if not_run else kind,
        devices=devices,
        slots=() if not_run else this_machine.core_slots(cores[:count]),
        description=f"{count} CPU stand-ins (1 core each, gRPC)",
        not_run=not_run,
    )


def plan_here(
    kind: TestbedKind | None,
    count: int,
    *,
    open_ports: bool,
    note: Callable[[str], None],
    instead: str = ONE_PROCESS,
) -> TestbedPlan:
    """Plan a testbed of this machine on which steps run now; see `with_network` and `with_load`.

    Raises:
        TestbedError: nothing can run here, or only with open ports that are not accepted.
    """
    plan = plan_testbed(kind, count)
    if plan.not_run is not None:
        raise TestbedError(
            f"nothing can run here: {plan.not_run}", hint="`advisor doctor` says what can"
        )
    plan = with_network(plan, open_ports=open_ports, instead=instead, note=note)
    return with_load(plan, note)


def plan_hosts(
    hosts: tuple[HostShare, ...], link: HostLink, away_ns: int | None = None
) -> TestbedPlan:
    """Return the testbed of what several hosts lend, all of one kind; see `TestbedPlan`."""
    slots = tuple(slot for host in hosts for slot in host.slots)
    on_gpus = slots[0].kind == this_machine.GPU
    shares = ", ".join(f"{host.name}: {_lent(host)}" for host in hosts)
    what = "GPUs" if on_gpus else "CPU stand-ins"
    each = "1 process each" if on_gpus else "1 core each"
    number = "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
    network = "TLS" if link is HostLink.TLS else "no encryption"
    return TestbedPlan(
        kind=TestbedKind.HOSTS,
        devices=tuple(
            Device(
                name=name,
                kind=slot.kind,
                memory_bytes=None if host.gpus is None else common_memory(host.gpus),
            )
            for host in hosts
            for name, slot in zip(host.device_names, host.slots, strict=True)
        ),
        slots=slots,
        stand_in=not on_gpus,
        description=f"{len(slots)} {what} on {number} ({shares}; {each}, gRPC, {network})",
        hosts=hosts,
        link=link,
        away_ns=away_ns,
    )


def _lent(host: HostShare) -> str:
    """Return how many devices a host lends, and what its GPUs are called."""
    name = None if host.gpus is None else common_name(host.gpus)
    return f"{len(host.slots)}" if name is None else f"{len(host.slots)} {name}"


def with_network(
    plan: TestbedPlan, *, open_ports: bool, instead: str, note: Callable[[str], None]
) -> TestbedPlan:
    """Return the plan with open ports if it has workers that cannot have a private network.

    ``note`` is told so, for the user to know before anything starts. ``instead`` is what else can
    be done.

    Raises:
        TestbedError: ``open_ports`` does not accept them.
    """
    if plan.kind is not TestbedKind.WORKERS or this_machine.can_have_private_network():
        return plan
    if not open_ports:
        raise TestbedError(
            "this system allows no private network. TensorFlow's workers would listen on every "
            "interface without authentication: anyone who reaches them could read and write "
            "your files",
            hint=f"{instead}; --open-ports accepts it until the run ends; `advisor doctor` says "
            "how to allow a network",
        )
    plan = replace(plan, open_ports=True)
    for warning in plan.warnings:
        note(f"warning: {warning}")
    return plan


def with_load(plan: TestbedPlan, note: Callable[[str], None]) -> TestbedPlan:
    """Return the plan with the load of this machine, if something is to be timed beside it.

    ``note`` is told so, for the user to know before anything starts.
    """
    if plan.not_run is not None:
        return plan
    load, cores = this_machine.other_work(), this_machine.find_cores().usable
    here = [host.slots for host in plan.hosts if host.is_here] if plan.hosts else [plan.devices]
    if not this_machine.is_busy(load.cores, cores, sum(map(len, here))):
        return plan
    plan = replace(plan, load=load)
    note(f"warning: {plan.warnings[-1]}")
    return plan
