"""Where a mirrored step runs: copies of the user's model under `tf.distribute`.

On the `workers` testbed each copy is a process of its own, on the core of the device that it stands
for (`MultiWorkerMirroredStrategy`); else one process has all devices (`MirroredStrategy`). These
processes run the user's file once more, and have nothing to do while other candidates run. When one
of them dies, all end: the candidate is out, and nothing else is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.errors import TestbedError
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.processes.call_failure import CallFailure, FailureCause, expect
from placement_advisor.processes.children import Child
from placement_advisor.testbed.testbed import (
    CALL_LIMIT_S,
    START_LIMIT_S,
    ProfileFiles,
    dead_among,
    join_network,
    only_profile,
    profile_folder,
)
from placement_advisor.tf.calls import mirrored, runner, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.processes.callee import Pending
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.tf.answers import Prepared
    from placement_advisor.tf.load.model_source import ModelSource

_Returned = TypeVar("_Returned")

# Two processes take 3 s; anything near is a hang.
_COLLECTIVES_LIMIT_S = 120.0
# Judgement: after a profiler has crashed, each further try starts all processes anew.
_MORE_PROFILES = 2
# As in a trial (`trial.py`).
_WARM_UP = 3


class MirroredTestbed:
    """The processes of one mirrored step; they answer what a `Testbed` is asked of a candidate.

    `start` comes first. After a failure the processes are gone, and it is the answer to all that
    follows. Results are compared on ``testbed``, which knows the right ones.
    """

    def __init__(
        self,
        testbed: Testbed,
        source: ModelSource,
        bundle: Path,
        created: Mapping[str, int],
        *,
        program: str,
        draws: bool,
        statistics: Collection[str],
        scratch: Path,
    ) -> None:
        """Take the step's source, its bundle, and the order in which it creates its variables.

        ``program`` is the same split of the batch on the testbed; ``draws`` says that replicas of
        it draw random numbers, and of ``statistics``, variables, each replica may keep its own.
        """
        self._statistics = frozenset(statistics)
        self._program, self._draws = program, draws
        self._testbed, self._source, self._scratch = testbed, source, scratch
        self._bundle, self._created = bundle, created
        self._children: tuple[Child, ...] = ()
        self._failure: CallFailure | None = None

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids by name, of what runs now."""
        return {child.name: child.pid for child in self._children}

    def prepare(
        self, label: str, device_of: Mapping[str, str], program: str
    ) -> Prepared | CallFailure:
        """Make the step ready to run, which its strategy places."""
        return self._prepare()

    def verify(self, label: str, steps: int) -> Verification | CallFailure | None:
        """Compare the step's results with the right ones; None if these are not known."""
        files = {child.name: self._scratch / f"{child.name}.results" for child in self._children}
        failed = self._all(
            lambda child: child.start(
                mirrored.save_results, steps, str(files[child.name]), not self._draws
            )
        )
        if failed is not None:
            return failed
        paths = [str(path) for path in files.values()]
        found = self._testbed.call(runner.compare, self._program, paths, steps)
        for path in files.values():
            path.unlink()
        return found

    def run_steps(self, label: str, batch: int, steps: int) -> list[int] | CallFailure:
        """Run steps on the shares of a batch and return the time of each, in ns."""
        return self._all(lambda child: child.start(mirrored.run_steps, batch, steps))

    def run_weak_steps(
        self, batch: int, steps: int, *, time_limit_s: float
    ) -> list[int] | CallFailure:
        """Run steps with the whole batch on every device, as weak scaling has it."""
        return self._all(
            lambda child: child.start(mirrored.run_weak_steps, batch, steps), time_limit_s
        )

    def profile(self, label: str, steps: int) -> ProfileFiles | CallFailure:
        """Run steps with the profiler of each process on.

        A profiler that is stopped can take its process down, whatever the model: on CPUs some did
        with TensorFlow 2.21, in `tf.profiler.experimental.stop`. Then all processes are started
        anew, and profiled once more.
        """
        answer = self._profile(label, steps)
        for _ in range(_MORE_PROFILES):
            if not _crashed(answer):
                break
            self._failure = None
            answer = self._anew() or self._profile(label, steps)
        return answer

    def _profile(self, label: str, steps: int) -> ProfileFiles | CallFailure:
        folders = {
            child.name: profile_folder(self._scratch, label, child) for child in self._children
        }
        # Each ends before the next begins, so that nothing else goes on when profilers stop.
        stages: tuple[Callable[[Child], Pending[CallFailure | None]], ...] = (
            lambda child: child.start(worker.start_profiler, str(folders[child.name])),
            lambda child: child.start(mirrored.run_marked_steps, steps),
            lambda child: child.start(worker.stop_profiler),
        )
        for begin in stages:
            failed = self._all(begin)
            if failed is not None:
                return failed
        files = [only_profile(folder) for folder in folders.values()]
        if len(files) == 1:
            return ProfileFiles(client=files[0], devices={})
        devices = (device.name for device in self._testbed.plan.devices)
        return ProfileFiles(client=files[0], devices=dict(zip(devices, files, strict=True)))

    def _anew(self) -> CallFailure | None:
        """Start all processes again and warm the step up; return what went wrong, if anything."""
        try:
            self._open()
        except TestbedError as error:
            return CallFailure(cause=FailureCause.CRASHED, message=error.message)
        prepared = self._prepare()
        if isinstance(prepared, CallFailure):
            return prepared
        warm = self._all(lambda child: child.start(mirrored.run_steps, 0, _WARM_UP))
        return warm if isinstance(warm, CallFailure) else None

    def close(self) -> None:
        """End all processes."""
        for child in self._children:
            child.close()
        self._children = ()

    def start(self) -> CollectiveTimes | None:
        """Start all processes, and time the collectives among them; None if that fails.

        Why it failed is then the answer to all that follows.
        """
        try:
            self._open()
        except TestbedError as error:
            self._failure = CallFailure(cause=FailureCause.CRASHED, message=error.message)
            return None
        times = self._all(
            lambda child: child.start(mirrored.time_collectives), _COLLECTIVES_LIMIT_S
        )
        return None if isinstance(times, CallFailure) else times

    def _prepare(self) -> Prepared | CallFailure:
        bundle = str(self._bundle)
        prepared = self._all(
            lambda child: child.start(mirrored.prepare, self._source, bundle, self._created)
        )
        if isinstance(prepared, CallFailure):
            return prepared
        alone = tuple(name for name in prepared.unexchanged if name not in self._statistics)
        return replace(prepared, unexchanged=alone)

    def _open(self) -> None:
        plan = self._testbed.plan
        if plan.kind is not TestbedKind.WORKERS:
            self._children = (Child("mirrored"),)
            (child,) = self._children
            kind, count = plan.devices[0].kind, len(plan.devices)
            opened = child.call(mirrored.open_devices, kind, count, time_limit_s=START_LIMIT_S)
            expect(opened, partial(self._not_started, child))
            return
        self._children = tuple(Child(f"mirrored-{core}") for core in plan.cores)
        addresses = join_network(plan, self._children, (), self._not_started)
        opening = [
            (child, child.start(mirrored.open_worker, addresses, index, core))
            for index, (child, core) in enumerate(zip(self._children, plan.cores, strict=True))
        ]
        for child, begun in opening:
            answer = begun.wait(time_limit_s=START_LIMIT_S, watch=self._children)
            expect(answer, partial(self._not_started, child))

    def _not_started(self, child: Child, failure: CallFailure) -> TestbedError:
        """End the other processes, which would wait for it for ever, and return what to say."""
        self.close()
        return TestbedError(f"{child.name} did not start: {failure.message}")

    def _all(
        self, begin: Callable[[Child], Pending[_Returned]], time_limit_s: float = CALL_LIMIT_S
    ) -> _Returned | CallFailure:
        """Call a function in all processes at once, for they wait for each other.

        Returns the first one's answer, or what went wrong in any of them.
        """
        if self._failure is not None:
            return self._failure
        answers = []
        for begun in [begin(child) for child in self._children]:
            answer = begun.wait(time_limit_s=time_limit_s, watch=self._children)
            if isinstance(answer, CallFailure):
                if not answer.child_ended:
                    answer = dead_among(self._children) or answer
                self._failure = answer
                self.close()  # The others would wait for it for ever.
                return answer
            answers.append(answer)
        return answers[0]


def _crashed(answer: ProfileFiles | CallFailure) -> bool:
    """Say whether a process is gone, and neither its time nor its memory was up."""
    return (
        isinstance(answer, CallFailure)
        and answer.child_ended
        and answer.cause is FailureCause.CRASHED
    )
