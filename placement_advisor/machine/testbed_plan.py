"""Which testbed this machine can have: the devices, their cores, and why nothing can run, if so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.errors import TestbedError
from placement_advisor.machine.devices import Device
from placement_advisor.machine.nvidia import common_memory, find_gpus
from placement_advisor.machine.system import (
    can_have_private_network,
    find_cores,
    is_busy,
    load_average,
)
from placement_advisor.machine.this_machine import gpu_count, usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable


# What else can be done, in the words of `with_network`.
ONE_PROCESS = "--testbed logical-cpus takes one process, which listens on nothing"
_PORTS_ARE_OPEN = (
    "this system allows no private network: until this run ends, TensorFlow's workers "
    "listen on every interface without authentication, and whoever reaches them can read and write "
    "your files (--open-ports)"
)

_BUSY = (
    "other work keeps this machine busy: {load:.1f} processes wanted to run on average in the last "
    "minute, before this one; all takes longer, times waver, and a verdict may stay open"
)


class TestbedKind(StrEnum):
    """Where candidates run."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    GPUS = "gpus"
    WORKERS = "workers"
    LOGICAL_CPUS = "logical-cpus"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedPlan:
    """What was chosen for this machine; ``not_run`` says why nothing runs, if so.

    ``is_declined``: something could run, and is not to.

    ``load`` is how many processes of others wanted to run, if that is too many for the devices.

    Workers have a network of their own, unless the user accepts ``open_ports``: then whoever
    reaches this machine by network reaches them.
    """

    __test__ = False  # The name starts with "Test"; pytest must not collect it.

    kind: TestbedKind
    devices: tuple[Device, ...]
    cores: tuple[int, ...]
    stand_in: bool
    description: str
    not_run: str | None
    is_declined: bool = False
    open_ports: bool = False
    load: float | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user is to know before anything starts."""
        found = (_PORTS_ARE_OPEN,) if self.open_ports else ()
        return found if self.load is None else (*found, _BUSY.format(load=self.load))


def plan_testbed(kind: TestbedKind | None, count: int) -> TestbedPlan:
    """Choose a testbed of ``count`` devices for this machine.

    Raises:
        TestbedError: the kind asked for cannot be had here.
    """
    gpus = gpu_count()
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
            cores=(),
            stand_in=False,
            description=f"{count} GPUs",
            not_run=None,
        )
    if kind is TestbedKind.LOGICAL_CPUS:
        return TestbedPlan(
            kind=kind,
            devices=tuple(Device(name=f"cpu:{i}", kind="CPU") for i in range(count)),
            cores=(),
            stand_in=True,
            description=f"{count} logical CPUs of one process (shared cores, copies are pointers)",
            not_run=None,
        )
    devices = tuple(Device(name=f"worker:{i}", kind="CPU") for i in range(count))
    cores = usable_cores()
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
        cores=() if not_run else cores[:count],
        stand_in=True,
        description=f"{count} CPU stand-ins (1 core each, gRPC)",
        not_run=not_run,
    )


def with_network(
    plan: TestbedPlan, *, open_ports: bool, instead: str, note: Callable[[str], None]
) -> TestbedPlan:
    """Return the plan with open ports if it has workers that cannot have a private network.

    ``note`` is told so, for the user to know before anything starts. ``instead`` is what else can
    be done.

    Raises:
        TestbedError: ``open_ports`` does not accept them.
    """
    if plan.kind is not TestbedKind.WORKERS or can_have_private_network():
        return plan
    if not open_ports:
        raise TestbedError(
            "this system allows no private network, and without one TensorFlow's workers "
            "listen on every interface without authentication: whoever reaches them can read and "
            "write your files",
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
    load, cores = load_average(), find_cores().usable
    if plan.not_run is not None or not is_busy(load, cores, len(plan.devices)):
        return plan
    plan = replace(plan, load=load)
    note(f"warning: {plan.warnings[-1]}")
    return plan
