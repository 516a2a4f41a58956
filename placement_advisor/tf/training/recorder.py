"""Records some steps of a training that goes on: the profiler runs while they do.

Model: steps are counted from 1, over all epochs. The first recorded step is the one in which the
profiler sets itself up; whoever reads the profile leaves it out. Each step is marked. Devices are
waited for before the first and after the last recorded step, nowhere else.

Left out: what another profiler of the same process records; while one runs, nothing is recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from placement_advisor.tf.run.runner import profiler_options


class Recorder:
    """Records the steps from ``first`` to ``last``; ``failure`` says why it did not.

    ``recorded`` counts steps. Outside of what it records a step costs a count and a comparison.

    Raises:
        ValueError: there are no such steps.
    """

    def __init__(self, log_dir: str | Path, steps: tuple[int, int]) -> None:
        """Record into a log folder."""
        self.log_dir = Path(log_dir)
        self.first, self.last = steps
        if not 1 <= self.first <= self.last:
            raise ValueError(f"steps are {steps!r}, not (first, last) counted from 1")
        self.begun = self.recorded = 0
        self.failure: str | None = None
        self._mark: Any = None
        self._is_on = False

    @property
    def is_done(self) -> bool:
        """Whether all has been recorded that will be."""
        return self.begun >= self.last and not self._is_on

    def begin(self) -> bool:
        """Count a step that begins; return whether it is recorded."""
        self.begun += 1
        if not self.first <= self.begun <= self.last:
            return False
        if self.begun == self.first:
            self._start()
        if self._is_on:
            self._mark = tf.profiler.experimental.Trace("train", step_num=self.begun, _r=1)
            self._mark.__enter__()
        return self._is_on

    def end(self) -> None:
        """End the step that began last."""
        if self._mark is None:
            return
        mark, self._mark = self._mark, None
        mark.__exit__(None, None, None)
        self.recorded += 1
        if self.begun >= self.last:
            self.stop()

    def stop(self) -> None:
        """Write what was recorded, if it is not written yet."""
        if not self._is_on:
            return
        self._is_on, self._mark = False, None
        _wait_for_devices()
        tf.profiler.experimental.stop()

    def _start(self) -> None:
        _wait_for_devices()
        try:
            tf.profiler.experimental.start(str(self.log_dir), options=profiler_options())
        except tf.errors.OpError as error:
            self.failure = f"the profiler did not start: {error.message}"
        else:
            self._is_on = True


def _wait_for_devices() -> None:
    """Wait until nothing runs that was started before: on GPUs steps end later than they return."""
    if tf.executing_eagerly():  # A session waits by itself.
        tf.test.experimental.sync_devices()
