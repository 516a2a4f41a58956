"""Which devices hosts lend: GPUs where all have enough of them, cores where none has any.

All devices of one analysis are of one kind: what a split gains would else be what the faster kind
gains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.errors import TestbedError
from placement_advisor.machine.slots import core_slots, gpu_slots
from placement_advisor.machine.this_machine import VISIBLE_GPUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.machine.slots import Slot
    from placement_advisor.remote_hosts.host_facts import HostFacts
    from placement_advisor.remote_hosts.host_requests import HostRequest

# Where no launcher starts it, as here or for a service that waits, the variable goes before it.
_HIDE_GPUS = (
    f"for cores, start advisor on each host with {VISIBLE_GPUS}= before it, as does "
    f"--launch 'ssh {{host}} env {VISIBLE_GPUS}='"
)
_FEWEST_DEVICES = 2


def lend_gpus(asked: Mapping[HostRequest, HostFacts]) -> bool:
    """Return whether devices of hosts are GPUs; else they are cores.

    Raises:
        TestbedError: some have GPUs, and not all have as many as they are asked for.
    """
    if not any(facts.visible_gpus for facts in asked.values()):
        return False
    if all(facts.visible_gpus >= request.devices for request, facts in asked.items()):
        return True
    each = ", ".join(
        f"{request.name} has {facts.visible_gpus or 'none'} for {request.devices}"
        for request, facts in asked.items()
    )
    there = {
        request.name: min(request.devices, facts.visible_gpus)
        for request, facts in asked.items()
        if facts.visible_gpus
    }
    hint = _HIDE_GPUS
    if sum(there.values()) >= _FEWEST_DEVICES:
        words = ",".join(f"{name}:{count}" for name, count in there.items())
        hint = f"for GPUs that are there, --hosts {words}; {hint}"
    raise TestbedError(
        f"--hosts: devices are GPUs on all hosts, or cores on all; of GPUs {each}", hint=hint
    )


def lent_slots(request: HostRequest, facts: HostFacts, *, gpus: bool) -> tuple[Slot, ...]:
    """Return what a host lends, GPUs of which it has enough or cores.

    Raises:
        TestbedError: it has too few cores.
    """
    if gpus:
        return gpu_slots(request.devices)
    if request.devices > len(facts.cores):
        raise TestbedError(
            f"host {request.name}: {request.devices} devices need a core of their own each; it "
            f"lets us use {len(facts.cores)}",
            hint=f"--hosts {request.name}:{len(facts.cores)}",
        )
    return core_slots(facts.cores[: request.devices])
