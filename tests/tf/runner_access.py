"""What tests do to a runner from inside its process."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from placement_advisor.machine.this_machine import Slot
from placement_advisor.testbed.testbed import STEP
from placement_advisor.tf.run import calibration, mirrored, runner
from placement_advisor.tf.run.calibration import Reference


def start_from_other_values(variable: str) -> None:
    """Let candidates that are prepared from now on start from another value of a variable."""
    values = runner._programs[STEP].bundle.variables
    values[variable] = np.asarray(values[variable] + 1)


def variable(label: str, name: str) -> np.ndarray:
    """Return a variable's present value."""
    step = runner._ready[label]
    return np.asarray(step._session.run(step._reads[name]))


def calibrate(*failures: str) -> Any:
    """Calibrate where attempts fail with these errors of TensorFlow, and the next one does not."""
    twice = "request was received twice"
    answers = [getattr(tf.errors, name)(None, None, twice) for name in failures]
    with patch.object(calibration, "measure", side_effect=[*answers, "measured"]):
        return runner.calibrate({})


def pairs_copied(*devices: str) -> list[tuple[str, str]]:
    """Calibrate without measuring; return the pairs of devices between which copies were timed."""
    places = {f"{number}": device for number, device in enumerate(devices)}
    with (
        patch.object(calibration, "copy") as copy,
        patch.object(calibration, "both_ways"),
        patch.object(calibration, "reference", return_value=Reference(product_ns=1, p90_ratio=1)),
        patch.object(calibration, "step_and_op_ns", return_value=(1, 1)),
        patch.object(calibration, "middle", side_effect=lambda passes: passes[0]),
    ):
        found = calibration.measure(None, places, {})  # type: ignore[arg-type]
    assert len(found.links) == len(places) * (len(places) - 1)
    assert len(found.both_ways) == len(found.links) // 2
    return [call.args[1] for call in copy.call_args_list]


def time_collectives(failure: str) -> Any:
    """Time collectives where TensorFlow fails."""
    error = getattr(tf.errors, failure)(None, None, "connection reset")
    with patch.object(mirrored, "_strategy"), patch.object(mirrored, "_times", side_effect=error):
        return mirrored.time_collectives()


def open_mirrored_worker(failure: str) -> Any:
    """Become a worker of a mirrored step where TensorFlow fails."""
    error = getattr(tf.errors, failure)(None, None, "connection reset")
    with (
        patch.dict("os.environ"),
        patch.object(mirrored, "become_device"),
        patch.object(tf, "config"),
        patch.object(tf.distribute, "MultiWorkerMirroredStrategy", side_effect=error),
    ):
        return mirrored.open_worker((), 0, Slot(kind="CPU", number=0))
