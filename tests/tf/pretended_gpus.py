"""What a process of a device does on a machine that pretends to have GPUs, or to have none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import tensorflow as tf

from placement_advisor.machine.this_machine import VISIBLE_GPUS
from placement_advisor.tf.run import runner
from placement_advisor.tf.run.calibration import reach
from placement_advisor.tf.run.graph_timing import GraphTimer

if TYPE_CHECKING:
    from placement_advisor.machine.host_figures import Reach
    from placement_advisor.machine.this_machine import Slot


def visible_to(slot: Slot, visible: str, *found: str) -> str:
    """Return what the process of a device sees where these are visible and TensorFlow finds some.

    Raises:
        TestbedError: it finds none, and the device is a GPU.
    """
    os.environ[VISIBLE_GPUS] = visible
    with patch.object(tf.config, "list_physical_devices", return_value=list(found)):
        runner.become_device(slot)
    return os.environ[VISIBLE_GPUS]


def visible_to_client(target: str) -> str:
    """Return what the client sees that drives devices of such a target."""
    os.environ[VISIBLE_GPUS] = "0"
    runner.open_runner(target, {}, "", 0)
    return os.environ[VISIBLE_GPUS]


def reach_without_core_clocks() -> Reach:
    """Return what it takes to drive a second device where no device is a core."""
    places = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}
    runner.open_runner("", places, places["cpu:0"], len(places))
    return reach(GraphTimer(runner._runtime, places, {}), *places, product_ns=1_000_000)
