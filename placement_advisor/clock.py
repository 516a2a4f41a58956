"""Wall time by stage. The one place beside progress and measurement that reads a clock."""

import time


class Clock:
    """Wall time by stage: each lasts until the next begins, so that nothing lies between them."""

    def __init__(self, stage: str) -> None:
        """Begin with a stage."""
        self._stage, self._since_ns = stage, time.perf_counter_ns()
        self._spent_ns: dict[str, int] = {}

    def begin(self, stage: str) -> None:
        """End the stage that is under way and begin another, or go on with one from before."""
        now_ns = time.perf_counter_ns()
        spent_ns = self._spent_ns.get(self._stage, 0) + now_ns - self._since_ns
        self._spent_ns[self._stage] = spent_ns
        self._stage, self._since_ns = stage, now_ns

    def timings_ns(self) -> dict[str, int]:
        """Return the time of every stage up to now; together they are all of the time."""
        self.begin(self._stage)
        return dict(self._spent_ns)
