"""Where a mirrored step runs: copies of the user's model under `tf.distribute`.

On the testbeds `workers` and `hosts` each copy is a process of its own, on the core or the GPU of
its device (`MultiWorkerMirroredStrategy`); else one process has all devices (`MirroredStrategy`).
These processes run the user's file once more, and have nothing to do while other candidates run.
When one of them dies, all end: the candidate is out, and nothing else is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.measurement.verification import Verification, from_other_values
from placement_advisor.processes.calls import CALL_LIMIT_S, Callee, CallFailure, PendingCall, expect
from placement_advisor.processes.children import Child
from placement_advisor.testbed import testbed as testbeds
from placement_advisor.tf.calls import mirrored, runner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.tf.answers import CapturedCall, Prepared
    from placement_advisor.tf.load.model_source import ModelSource

_Returned = TypeVar("_Returned")

# Two processes take 3 s, over 10 Mbit/s a minute; anything near is a hang.
_COLLECTIVES_LIMIT_S = 300.0
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
        testbed: testbeds.Testbed,
        source: ModelSource,
        bundle: Path,
        created: Mapping[str, int],
        *,
        captured: CapturedCall | None,
        program: str,
        draws: bool,
        statistics: Collection[str],
    ) -> None:
        """Take the step's source, its bundle, and the order in which it creates its variables.

        A script runs up to the call that was ``captured``. ``program`` is the same split of the
        batch on the testbed; ``draws`` says that replicas of it draw random numbers, and of
        ``statistics``, variables, each replica may keep its own.
        """
        self._statistics = frozenset(statistics)
        self._program, self._draws = program, draws
        self._testbed, self._source = testbed, source
        self._bundle, self._created, self._captured = bundle, created, captured
        self._children: tuple[Callee, ...] = ()
        self._failure: CallFailure | None = None

    def prepare(
        self, label: str, device_of: Mapping[str, str], program: str
    ) -> Prepared | CallFailure:
        """Make the step ready to run, which its strategy places."""
        return self._prepare()

    def verify(self, label: str, steps: int) -> Verification | CallFailure | None:
        """Compare the step's results with the right ones; None if these are not known."""
        try:
            return from_other_values(partial(self._verify, steps))
        except TestbedError as error:  # A host is gone.
            return self._lost(error)

    def _verify(self, steps: int, seed: int | None) -> Verification | CallFailure | None:
        site = self._testbed.site
        paths = {
            child.name: f"{site.new_folder(i, child.name)}/results"
            for i, child in enumerate(self._children)
        }
        limit_s = testbeds.steps_limit_s(self._testbed.plan, steps)
        failed = self._first(
            lambda child: child.start(
                mirrored.save_results, steps, paths[child.name], not self._draws, seed
            ),
            limit_s,
        )
        if failed is not None:
            return failed
        files = [site.fetch(i, path) for i, path in enumerate(paths.values())]
        named = list(map(str, files))
        found = self._testbed.call(runner.compare, self._program, named, seed, time_limit_s=limit_s)
        for path in files:
            path.unlink()
        return found

    def run_steps(self, label: str, batch: int, steps: int) -> list[int] | CallFailure:
        """Run steps on the shares of a batch and return the time of each, in ns."""
        limit_s = testbeds.steps_limit_s(self._testbed.plan, steps)
        return self._first(lambda child: child.start(mirrored.run_steps, batch, steps), limit_s)

    def profile(self, label: str, steps: int) -> testbeds.ProfileFiles | CallFailure:
        """Run steps with the profiler of each process on.

        A profiler that is stopped can take its process down, whatever the model: on CPUs some did
        with TensorFlow 2.21, in `tf.profiler.experimental.stop`. Then all processes are started
        anew, and profiled once more.
        """
        try:
            answer = self._profile(label, steps)
            for _ in range(_MORE_PROFILES):
                if not testbeds.has_crashed(answer):
                    break
                self._failure = None
                answer = self._anew() or self._profile(label, steps)
        except TestbedError as error:  # A host is gone.
            return self._lost(error)
        return answer

    def _profile(self, label: str, steps: int) -> testbeds.ProfileFiles | CallFailure:
        site = self._testbed.site
        folders = {
            child.name: site.new_folder(i, f"profile-{label}-{child.name}")
            for i, child in enumerate(self._children)
        }
        before = site.pings()
        # Each ends before the next begins, so that nothing else goes on when profilers stop.
        stages: tuple[Callable[[Callee], PendingCall[CallFailure | None]], ...] = (
            lambda child: child.start(runner.start_profiler, folders[child.name]),
            lambda child: child.start(mirrored.run_marked_steps, steps),
        )
        for begin in stages:
            failed = self._first(begin, testbeds.steps_limit_s(self._testbed.plan, steps))
            if failed is not None:
                return failed
        written = self._all(lambda child: child.start(runner.stop_profiler))
        if isinstance(written, CallFailure):
            return written
        if not self._is_of_workers:
            return testbeds.ProfileFiles(client=Path(written[0]), devices={})
        devices = [device.name for device in self._testbed.plan.devices]
        files = testbeds.fetched_profiles(site, before, Path(), devices, written)
        clocks = replace(files.clocks, client=devices[0])
        return replace(files, client=files.devices[devices[0]], clocks=clocks)

    def _anew(self) -> CallFailure | None:
        """Start all processes again and warm the step up; return what went wrong, if anything."""
        try:
            self._open()
        except TestbedError as error:
            return testbeds.crash_failure(error)
        prepared = self._prepare()
        if isinstance(prepared, CallFailure):
            return prepared
        warm = self._first(lambda child: child.start(mirrored.run_steps, 0, _WARM_UP))
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
            self._failure = testbeds.crash_failure(error)
            return None
        times = self._first(
            lambda child: child.start(mirrored.time_collectives), _COLLECTIVES_LIMIT_S
        )
        return None if isinstance(times, CallFailure) else times

    def _prepare(self) -> Prepared | CallFailure:
        site = self._testbed.site
        try:
            sent = {
                child.name: (
                    replace(self._source, path=site.send(i, Path(self._source.path))),
                    site.send(i, self._bundle),
                )
                for i, child in enumerate(self._children)
            }
        except AdvisorError as error:
            return testbeds.crash_failure(error)
        prepared = self._first(
            lambda child: child.start(
                mirrored.prepare, *sent[child.name], self._created, self._captured
            ),
            max(CALL_LIMIT_S, self._source.capture_timeout_s),
        )
        if isinstance(prepared, CallFailure):
            return prepared
        alone = tuple(name for name in prepared.unexchanged if name not in self._statistics)
        return replace(prepared, unexchanged=alone)

    @property
    def _is_of_workers(self) -> bool:
        return self._testbed.plan.kind in testbeds.HAVE_WORKERS

    def _open(self) -> None:
        try:
            self._start_processes()
        except TestbedError:
            self.close()  # The others would wait for it for ever.
            self._testbed.end_if_dead()  # It may need what has died, too.
            raise

    def _start_processes(self) -> None:
        plan = self._testbed.plan
        self._children = ()
        if not self._is_of_workers:
            alone = Child("mirrored")
            self._children = (alone,)
            kind, count = plan.devices[0].kind, len(plan.devices)
            testbeds.at_start(alone, mirrored.open_devices, kind, count)
            return
        site = self._testbed.site
        for i, device in enumerate(plan.devices):
            self._children = (*self._children, site.fork(i, f"mirrored-{device.name}"))
        addresses = site.join(self._children, None)
        opening = [
            (child, child.start(mirrored.open_worker, addresses, index, slot))
            for index, (child, slot) in enumerate(zip(self._children, plan.slots, strict=True))
        ]
        for child, begun in opening:
            answer = begun.wait(time_limit_s=testbeds.START_LIMIT_S, watch=self._needed())
            expect(answer, partial(testbeds.NotStartedError, child))

    def _lost(self, error: TestbedError) -> CallFailure:
        """End all processes and return what to answer from now on."""
        self.close()
        self._failure = testbeds.crash_failure(error)
        return self._failure

    def _needed(self) -> tuple[Callee, ...]:
        """Return the processes without which the others wait for ever."""
        return (*self._children, *self._testbed.site.relays)

    def _first(
        self,
        begin: Callable[[Callee], PendingCall[_Returned]],
        time_limit_s: float = CALL_LIMIT_S,
    ) -> _Returned | CallFailure:
        """Return the first process's answer to what all are asked; see `_all`."""
        answers = self._all(begin, time_limit_s)
        return answers if isinstance(answers, CallFailure) else answers[0]

    def _all(
        self,
        begin: Callable[[Callee], PendingCall[_Returned]],
        time_limit_s: float = CALL_LIMIT_S,
    ) -> list[_Returned] | CallFailure:
        """Call a function in all processes at once, for they wait for each other.

        Returns all answers, or what went wrong in any of them.
        """
        if self._failure is not None:
            return self._failure
        answers: list[_Returned] = []
        needed = self._needed()
        for begun in [begin(child) for child in self._children]:
            answer = begun.wait(time_limit_s=time_limit_s, watch=needed)
            if isinstance(answer, CallFailure):
                if not answer.child_ended:
                    answer = testbeds.first_exit(needed, self._testbed.site) or answer
                self._failure = answer
                self.close()  # The others would wait for it for ever.
                self._testbed.end_if_dead()  # It may need what has died, too.
                return answer
            answers.append(answer)
        return answers
