"""Times small graphs on a testbed, in turns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.run import core_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.tf.place.placed_step import Runtime

    Build = Callable[["Bench"], list[Any]]

# Judgement: twenty steps of each graph, in five turns so that no graph has a good or a bad moment
# to itself. More would make calibrations more even, and each first analysis longer.
ROUNDS = 5
STEPS = 4
# The first step of a graph is set up, the second finds its buffers: judgement, no figure behind it.
_WARMUPS = 2


class Bench:
    """Runs small graphs on a testbed."""

    def __init__(
        self, runtime: Runtime, devices: Mapping[str, str], clocks: Mapping[str, str]
    ) -> None:
        """Take devices (our name -> TensorFlow's), and `core_clock` tokens of some of them."""
        self._runtime, self._devices, self._clocks = runtime, devices, clocks
        self._holders: list[Any] = []

    @property
    def reads_cores(self) -> bool:
        """Whether devices are processes on cores, whose time it reads."""
        return bool(self._clocks)

    def on(self, device: str) -> Any:
        """Return the scope of a device."""
        return tf.device(self._devices[device])

    def held(self, device: str, shape: Sequence[int]) -> Any:
        """Return a tensor that is ready when the step begins, from a variable."""
        with self.on(device):
            holder = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=shape, shared_name=f"calibration_{len(self._holders)}"
            )
            self._holders.append(
                tf.raw_ops.AssignVariableOp(resource=holder, value=tf.zeros(shape))
            )
            return tf.raw_ops.ReadVariableOp(resource=holder, dtype=tf.float32)

    def times(
        self,
        builds: Mapping[str, Build],
        *,
        rounds: int = ROUNDS,
        steps: int = STEPS,
        before: Build | None = None,
    ) -> dict[str, Timing]:
        """Run graphs in turns, each for some steps, and return what each takes.

        A step of ``before`` runs before each of theirs, and counts for the cores alone.
        """
        self._holders = []
        graph = tf.Graph()
        with graph.as_default():
            ends = {name: build(self) for name, build in builds.items()}
            ends_before = [] if before is None else before(self)
            clocks = [self._clock(device) for device in self._clocks]
        samples: dict[str, list[int]] = {name: [] for name in builds}
        core: dict[str, dict[str, list[float]]] = {
            name: {device: [] for device in self._clocks} for name in builds
        }
        with self._runtime.session(graph) as session:
            session.run(self._holders)
            calls = {name: session.make_callable(end) for name, end in ends.items()}
            core_ns = session.make_callable(clocks) if clocks else list
            prepare = session.make_callable(ends_before) if ends_before else _do_nothing
            for call in calls.values():
                for _ in range(_WARMUPS):
                    call()
            for _ in range(rounds):
                for name, call in calls.items():
                    call()  # The turn before has left its data in the caches.
                    begun_ns: list[int] = core_ns()
                    for _ in range(steps):
                        prepare()
                        samples[name].append(timed(call))
                    for device, *read_ns in zip(self._clocks, begun_ns, core_ns(), strict=True):
                        core[name][device].append((read_ns[1] - read_ns[0]) / steps)
        return {
            name: Timing(
                step_ns=median(samples[name]),
                p90_ns=quantiles(samples[name], n=10)[-1],
                core_ns={device: median(of) for device, of in core[name].items()},
            )
            for name in builds
        }

    def values(self, build: Build, steps: int) -> list[tuple[float, ...]]:
        """Return what a graph returns, step by step."""
        self._holders = []
        graph = tf.Graph()
        with graph.as_default():
            ends = build(self)
        with self._runtime.session(graph) as session:
            session.run(self._holders)
            call = session.make_callable(ends)
            for _ in range(_WARMUPS):
                call()
            return [tuple(map(float, call())) for _ in range(steps)]

    def _clock(self, device: str) -> Any:
        with self.on(device):
            return core_clock.reading(self._clocks[device])


def _do_nothing() -> None:
    pass


def timed(function: Callable[[], Any]) -> int:
    """Return how long a call takes, in ns."""
    start = time.perf_counter_ns()
    function()
    return time.perf_counter_ns() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Medians: of a step, and of the processor time that it takes by device.

    ``p90_ns`` is the 90th percentile of the steps.
    """

    step_ns: float
    p90_ns: float
    core_ns: Mapping[str, float]
