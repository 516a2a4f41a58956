"""What tests ask inside a runner's process, also on a machine that pretends to have GPUs."""

import os
import socket
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from placement_advisor.machine.this_machine import VISIBLE_GPUS, Slot
from placement_advisor.testbed.testbed import STEP
from placement_advisor.tf.run import calibration, mirrored, runner
from placement_advisor.tf.run.calibration import Reference, reach
from placement_advisor.tf.run.graph_timing import GraphTimer

_listening = []


def start_from_other_values(variable):
    """Let candidates that are prepared from now on start from another value of a variable."""
    values = runner._programs[STEP].bundle.variables
    values[variable] = np.asarray(values[variable] + 1)


def variable(label, name):
    """Return a variable's present value."""
    step = runner._ready[label]
    return np.asarray(step._session.run(step._reads[name]))


def calibrate(*failures):
    """Calibrate where attempts fail with these errors of TensorFlow, and the next one does not."""
    twice = "request was received twice"
    answers = [getattr(tf.errors, name)(None, None, twice) for name in failures]
    with patch.object(calibration, "measure", side_effect=[*answers, "measured"]):
        return runner.calibrate({})


def pairs_copied(*devices):
    """Calibrate without measuring; return the pairs of devices between which copies were timed."""
    places = {f"{number}": device for number, device in enumerate(devices)}
    with (
        patch.object(calibration, "copy") as copy,
        patch.object(calibration, "both_ways"),
        patch.object(calibration, "reference", return_value=Reference(product_ns=1, p90_ratio=1)),
        patch.object(calibration, "step_and_op_ns", return_value=(1, 1)),
        patch.object(calibration, "middle", side_effect=lambda passes: passes[0]),
    ):
        found = calibration.measure(None, places, {})
    assert len(found.links) == len(places) * (len(places) - 1)
    assert len(found.both_ways) == len(found.links) // 2
    return [call.args[1] for call in copy.call_args_list]


def mirrored_failures():
    """Time collectives, and become a worker of a mirrored step, where TensorFlow fails."""
    error = tf.errors.UnavailableError(None, None, "connection reset")
    with patch.object(mirrored, "_strategy"), patch.object(mirrored, "_times", side_effect=error):
        timed = mirrored.time_collectives()
    with (
        patch.dict("os.environ"),
        patch.object(mirrored, "become_device"),
        patch.object(tf, "config"),
        patch.object(tf.distribute, "MultiWorkerMirroredStrategy", side_effect=error),
    ):
        return timed, mirrored.open_worker((), 0, Slot(kind="CPU", number=0))


def visible_to(slot, visible, *found):
    """Return what the process of a device sees where these are visible and TensorFlow finds some.

    Raises:
        TestbedError: it finds none, and the device is a GPU.
    """
    os.environ[VISIBLE_GPUS] = visible
    with patch.object(tf.config, "list_physical_devices", return_value=list(found)):
        runner.become_device(slot)
    return os.environ[VISIBLE_GPUS]


def visible_to_client(target):
    """Return what the client sees that drives devices of such a target."""
    os.environ[VISIBLE_GPUS] = "0"
    runner.open_runner(target, {}, "", 0)
    return os.environ[VISIBLE_GPUS]


def reach_without_core_clocks():
    """Return what it takes to drive a second device where no device is a core."""
    places = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}
    runner.open_runner("", places, places["cpu:0"], len(places))
    return reach(GraphTimer(runner._runtime, places, {}), *places, product_ns=1_000_000)


def listen(port=0):
    """Listen on loopback; return the port."""
    listener = socket.create_server(("127.0.0.1", port))
    _listening.append(listener)
    return int(listener.getsockname()[1])


def can_connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
