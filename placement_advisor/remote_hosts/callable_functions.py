"""The functions that a host's children may be called for from elsewhere: these and no others.

Not for want of trust: whoever may start a worker there may run anything. It keeps what travels
small enough to look through.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from placement_advisor.machine.this_machine import free_ports
from placement_advisor.remote_hosts import door, probe, relay
from placement_advisor.tf.calls import mirrored, runner
from placement_advisor.tf.run import private_network

if TYPE_CHECKING:
    from collections.abc import Callable


def _name(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the names by which a child finds a function: its module's and its own."""
    return function.__module__, function.__qualname__


CALLABLE = frozenset(
    _name(function)
    for function in (
        os.getpid,
        os.sched_setaffinity,
        free_ports,
        relay.start,
        door.open_network,
        probe.network_place,
        probe.answer_at,
        probe.try_way,
        private_network.create,
        private_network.join,
        runner.serve,
        runner.start_profiler,
        runner.stop_profiler,
        mirrored.open_devices,
        mirrored.open_worker,
        mirrored.time_collectives,
        mirrored.prepare,
        mirrored.run_steps,
        mirrored.save_results,
        mirrored.run_marked_steps,
    )
)
