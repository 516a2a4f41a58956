"""What was seen when the known step ran, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.nvidia import GpuPair
    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.testbed.testbed import ProfileFiles
    from placement_advisor.tf.acceptance.known_step import End
    from placement_advisor.tf.answers import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """What some equal products of the known step must take on a device.

    A right profile is within a factor of it. ``source`` says in words where it comes from.
    """

    device: str
    products: tuple[str, ...]
    time_ns: int
    within: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOfGpus:
    """What the driver says of two GPUs; None if it is not known.

    ``topology`` is what lies between them, ``peer_access`` whether one reads the other's memory.
    """

    topology: GpuPair | None
    peer_access: GpuPair | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRun:
    """The known step on two devices: what was planned, and what came back.

    ``device_of`` has the device of every op. ``problem`` says why the step did not run to its end,
    or its profile cannot be read; then what comes after is None. ``wrong_outputs`` are those that
    are not what they must be. ``profiled_steps`` were run under the profiler; ``step_ns`` is the
    median of those without it. ``expected`` is empty where nothing is known of the times of ops,
    ``gpus`` None where the devices are no GPUs, or GPUs of several processes.
    """

    device_at: Mapping[End, str]
    device_of: Mapping[str, str]
    problem: str | None = None
    prepared: Prepared | None = None
    wrong_outputs: tuple[str, ...] | None = None
    profiled_steps: int = 0
    step_ns: int | None = None
    profile: StepProfile | None = None
    files: ProfileFiles | None = None
    expected: tuple[ExpectedTime, ...] = ()
    gpus: PairOfGpus | None = None

    @property
    def title(self) -> str:
        """Names of both devices."""
        return " and ".join(self.device_at.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """All that was seen: on which devices, the known step as it was traced, its runs on pairs.

    ``testbed`` is the kind of it. ``private_names`` has what stands for each name of a person or a
    machine where findings are given to others.
    """

    testbed: str
    description: str
    tensorflow_version: str
    graph: OpGraph
    pairs: tuple[PairRun, ...]
    has_gpus: bool
    private_names: Mapping[str, str]
