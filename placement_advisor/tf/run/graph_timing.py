"""Times small graphs on a testbed in turns, with the processor time of each worker."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from functools import partial, wraps
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import tensorflow as tf

from placement_advisor.machine.calibration import REFERENCE_WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from placement_advisor.tf.placed_step import Runtime

    Build = Callable[["GraphTimer"], list[Any]]

P = ParamSpec("P")

# The clock of a process by its id, as the kernel numbers them (clock_getcpuclockid(3)).
_CLOCK_BITS, _CLOCK_OF_PROCESS = 3, 2
# TensorFlow keeps a function as long as a graph that calls it.
_graphs: list[Any] = []


def offer_core_clock(carriers: tuple[int, ...]) -> str:
    """Let steps read the processor time of this process, in ns; return the token that they need.

    That of ``carriers``, other processes of this user, is added.
    """
    with tf.Graph().as_default() as graph:
        read = tf.numpy_function(partial(_core_time_ns, carriers), [], tf.int64)
    _graphs.append(graph)
    token: bytes = read.op.get_attr("token")
    return token.decode()


def _core_time_ns(carriers: tuple[int, ...]) -> int:
    others = 0
    for pid in carriers:
        with contextlib.suppress(OSError):  # It has died, and its connections with it.
            others += time.clock_gettime_ns(~pid << _CLOCK_BITS | _CLOCK_OF_PROCESS)
    return time.process_time_ns() + others


def read_core_clock(token: str) -> Any:
    """Return the processor time of the process of the device in scope, which offered the token."""
    (time_ns,) = tf.raw_ops.PyFunc(input=[], token=token, Tout=[tf.int64])
    return time_ns


# Judgement: twenty steps of each graph, in five turns so that no graph has a good or a bad moment
# to itself. More would make calibrations more even, and each first analysis longer.
ROUNDS = 5
STEPS = 4
# The first step of a graph is set up, the second finds its buffers: judgement, no figure behind it.
_WARMUPS = 2


class GraphTimer:
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
        samples: dict[str, list[int]] = {name: [] for name in builds}
        core: dict[str, dict[str, list[float]]] = {
            name: {device: [] for device in self._clocks} for name in builds
        }
        with self._opened(*builds.values(), before, self._read_clocks) as opened:
            *calls, prepare, core_ns = opened
            for _ in range(rounds):
                for name, call in zip(builds, calls, strict=True):
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
        with self._opened(build) as (call,):
            return [tuple(map(float, call())) for _ in range(steps)]

    @contextlib.contextmanager
    def _opened(self, *builds: Build | None) -> Iterator[list[Callable[[], Any]]]:
        """Yield a function that runs each graph, warmed up; it returns [] if there is no graph."""
        self._holders = []
        graph = tf.Graph()
        with graph.as_default():
            ends = [build(self) if build else [] for build in builds]
        with self._runtime.session(graph) as session:
            session.run(self._holders)
            calls = [session.make_callable(end) if end else list for end in ends]
            for call in calls:
                for _ in range(_WARMUPS):
                    call()
            yield calls

    def _read_clocks(self, timer: GraphTimer) -> list[Any]:
        read = []
        for device, token in self._clocks.items():
            with timer.on(device):
                read.append(read_core_clock(token))
        return read


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


def _build(add: Callable[Concatenate[GraphTimer, P], list[Any]]) -> Callable[P, Build]:
    """Have a function add its ops when a `GraphTimer` makes the graph."""

    @wraps(add)
    def later(*args: P.args, **named: P.kwargs) -> Build:
        return lambda timer: add(timer, *args, **named)

    return later


@_build
def nothing(timer: GraphTimer, device: str) -> list[Any]:
    """Start and end a step."""
    with timer.on(device):
        return [tf.no_op()]


@_build
def both(timer: GraphTimer, one: Build, other: Build) -> list[Any]:
    """Run two graphs in one step."""
    return [*one(timer), *other(timer)]


@_build
def tiny_ops(timer: GraphTimer, device: str, count: int) -> list[Any]:
    """Run ops that compute next to nothing, one after the other."""
    tensor = timer.held(device, [4])
    with timer.on(device):
        for _ in range(count):
            tensor = tf.raw_ops.AddV2(x=tensor, y=tensor)
    return [tensor.op]


@_build
def products(timer: GraphTimer, device: str, count: int) -> list[Any]:
    """Multiply matrices, one product after the other."""
    matrix = timer.held(device, [REFERENCE_WIDTH, REFERENCE_WIDTH])
    with timer.on(device):
        return [_product(matrix, matrix, count).op]


def _product(tensor: Any, matrix: Any, count: int) -> Any:
    for _ in range(count):
        tensor = tf.linalg.matmul(tensor, matrix)
    return tensor


@_build
def sums(timer: GraphTimer, device: str, size_bytes: int, count: int) -> list[Any]:
    """Add a tensor to another one again and again."""
    tensor = summand = timer.held(device, [size_bytes // 4])
    with timer.on(device):
        for _ in range(count):
            tensor = tf.raw_ops.AddV2(x=tensor, y=summand)
    return [tensor.op]


@_build
def fan(timer: GraphTimer, ends: tuple[str, str], size_bytes: int, count: int) -> list[Any]:
    """Send tensors that are all ready at once."""
    source, target = ends
    there = []
    for _ in range(count):
        tensor = timer.held(source, [size_bytes // 4])
        with timer.on(target):
            there.append(tf.identity(tensor).op)
    return there


@_build
def chain(timer: GraphTimer, ends: tuple[str, str], size_bytes: int, hops: int) -> list[Any]:
    """Send one tensor to and fro; each end reads it all, which its caches do not hold."""
    tensor = timer.held(ends[0], [size_bytes // 4])
    for hop in range(hops):
        with timer.on(ends[(hop + 1) % 2]):
            tensor = tf.raw_ops.AddV2(x=tensor, y=tensor)
    return [tensor.op]


@_build
def round_trips(timer: GraphTimer, ends: tuple[str, str], size_bytes: int, count: int) -> list[Any]:
    """Send a tensor again and again, each time after a message of no bytes has come back."""
    source, target = ends
    tensor = timer.held(source, [size_bytes // 4])
    back: list[Any] = []
    for _ in range(count):
        with timer.on(source), tf.control_dependencies(back):
            sent = tf.identity(tensor)
        with timer.on(target):
            back = [tf.identity(sent).op]
    with timer.on(source), tf.control_dependencies(back):
        return [tf.no_op()]


@_build
def round_trip_after_rest(timer: GraphTimer, first: str, other: str, busy: int) -> list[Any]:
    """Time a round trip to ``other`` after ``first`` has computed, and another one at once.

    Returns the two times, in seconds; clocks are read on ``first``.
    """
    small = timer.held(first, [1])
    done = products(first, busy)(timer)
    with timer.on(first), tf.control_dependencies(done):
        read = [tf.timestamp()]
    for _ in range(2):
        with timer.on(first), tf.control_dependencies(read[-1:]):
            sent = tf.identity(small)
        with timer.on(other):
            seen = tf.identity(sent)
        with timer.on(first), tf.control_dependencies([seen]):
            read.append(tf.timestamp())
    with timer.on(first):
        return [read[1] - read[0], read[2] - read[1]]


@_build
def answered(timer: GraphTimer, first: str, other: str, count: int, busy: int) -> list[Any]:
    """Compute on ``first`` after a small tensor has come from ``other``, which computes as well."""
    ends = products(other, busy)(timer)
    small = timer.held(other, [1])
    matrix = timer.held(first, [REFERENCE_WIDTH, REFERENCE_WIDTH])
    with timer.on(first):
        with tf.control_dependencies([tf.identity(small)]):
            begun = tf.identity(matrix)
        return [*ends, _product(begun, matrix, count).op]
