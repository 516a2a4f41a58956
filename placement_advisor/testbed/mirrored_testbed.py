"""Where a mirrored step runs: copies of the user's model under `tf.distribute`.

On the `workers` testbed each copy is a process of its own, on the core of the device that it stands
for (`MultiWorkerMirroredStrategy`); else one process has all devices (`MirroredStrategy`). These
processes run the user's file once more, and have nothing to do while other candidates run. When one
of them dies, all end: the candidate is out, and nothing else is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import TestbedError
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.processes.children import Child, ChildFailure, FailureCause
from placement_advisor.testbed.testbed import (
    START_LIMIT_S,
    ProfileFiles,
    dead_among,
    join_network,
    only_profile,
    profile_folder,
)
from placement_advisor.tf.answers import Prepared, RunFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.tf.load.model_source import ModelSource

_MIRRORED = "placement_advisor.tf.run.mirrored"
_WORKER = "placement_advisor.tf.run.worker"
# Two processes take 3 s; anything near is a hang.
_COLLECTIVES_LIMIT_S = 120.0
# Judgement: after a profiler has crashed, each further try starts all processes anew.
_MORE_PROFILES = 2
# As in a trial (`trial.py`).
_WARM_UP = 3


class MirroredTestbed:
    """The processes of one mirrored step; they answer what a `Testbed` is asked of a candidate.

    `start` comes first. Results are compared on ``testbed``, which knows the right ones.
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
        self._failure: ChildFailure | RunFailure | None = None

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids by name, of what runs now."""
        return {child.name: child.pid for child in self._children}

    def call(self, function: str, label: str, *args: Any, time_limit_s: float) -> Any:
        """Prepare, verify or run the step; after a failure its processes are gone."""
        if self._failure is not None:
            return self._failure
        match function:
            case "prepare":
                return self._prepare(time_limit_s)
            case "verify":
                (steps,) = args
                return self._verify(steps, time_limit_s)
            case "run_steps" | "run_weak_steps":
                return self._all(f"{_MIRRORED}:{function}", lambda _: args, time_limit_s)
            case _:
                raise ValueError(f"{function} of a mirrored step")

    def profile(
        self, label: str, steps: int, *, time_limit_s: float
    ) -> ProfileFiles | ChildFailure | Any:
        """Run steps with the profiler of each process on; anything but files is what went wrong.

        A profiler that is stopped can take its process down, whatever the model: on CPUs some did
        with TensorFlow 2.21, in `tf.profiler.experimental.stop`. Then all processes are started
        anew, and profiled once more.
        """
        answer = self._profile(label, steps, time_limit_s)
        for _ in range(_MORE_PROFILES):
            if not isinstance(answer, ChildFailure) or answer.cause is not FailureCause.CRASHED:
                break
            self._failure = None
            answer = self._anew(time_limit_s) or self._profile(label, steps, time_limit_s)
        return answer

    def _profile(self, label: str, steps: int, time_limit_s: float) -> Any:
        folders = {
            child.name: profile_folder(self._scratch, label, child) for child in self._children
        }
        # Each ends before the next begins, so that nothing else goes on when profilers stop.
        for function, args_of in (
            (f"{_WORKER}:start_profiler", lambda child: (str(folders[child.name]),)),
            (f"{_MIRRORED}:run_marked_steps", lambda _: (steps,)),
            (f"{_WORKER}:stop_profiler", lambda _: ()),
        ):
            answer = self._all(function, args_of, time_limit_s)
            if answer is not None:
                return answer
        files = [only_profile(folder) for folder in folders.values()]
        if len(files) == 1:
            return ProfileFiles(client=files[0], devices={})
        devices = (device.name for device in self._testbed.plan.devices)
        return ProfileFiles(client=files[0], devices=dict(zip(devices, files, strict=True)))

    def _anew(self, time_limit_s: float) -> Any:
        """Start all processes again and warm the step up; return what went wrong, if anything."""
        try:
            self._open()
        except TestbedError as error:
            return RunFailure(out_of_memory=False, message=error.message)
        prepared = self._prepare(time_limit_s)
        if isinstance(prepared, ChildFailure | RunFailure):
            return prepared
        warm = self._all(f"{_MIRRORED}:run_steps", lambda _: (0, _WARM_UP), time_limit_s)
        return warm if isinstance(warm, ChildFailure | RunFailure) else None

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
            self._failure = RunFailure(out_of_memory=False, message=error.message)
            return None
        answer = self._all(f"{_MIRRORED}:time_collectives", lambda _: (), _COLLECTIVES_LIMIT_S)
        return None if isinstance(answer, ChildFailure | RunFailure) else answer

    def _prepare(self, time_limit_s: float) -> Any:
        asked = self._source, str(self._bundle), self._created
        answer = self._all(f"{_MIRRORED}:prepare", lambda _: asked, time_limit_s)
        if not isinstance(answer, Prepared):
            return answer
        alone = tuple(name for name in answer.unexchanged if name not in self._statistics)
        return replace(answer, unexchanged=alone)

    def _open(self) -> None:
        plan = self._testbed.plan
        if plan.kind is not TestbedKind.WORKERS:
            self._children = (Child("mirrored"),)
            (child,) = self._children
            kind, count = plan.devices[0].kind, len(plan.devices)
            opened = child.call(
                f"{_MIRRORED}:open_devices", kind, count, time_limit_s=START_LIMIT_S
            )
            self._must(opened, child)
            return
        self._children = tuple(Child(f"mirrored-{core}") for core in plan.cores)
        addresses = join_network(plan, self._children, (), self._must)
        for index, (child, core) in enumerate(zip(self._children, plan.cores, strict=True)):
            child.start(f"{_MIRRORED}:open_worker", addresses, index, core)
        for child in self._children:
            self._must(child.wait(time_limit_s=START_LIMIT_S, watch=self._children), child)

    def _verify(self, steps: int, time_limit_s: float) -> Any:
        files = {child.name: self._scratch / f"{child.name}.results" for child in self._children}
        answer = self._all(
            f"{_MIRRORED}:save_results",
            lambda child: (steps, str(files[child.name]), not self._draws),
            time_limit_s,
        )
        if answer is not None:
            return answer
        found = self._testbed.call(
            "compare",
            self._program,
            [str(path) for path in files.values()],
            steps,
            time_limit_s=time_limit_s,
        )
        for path in files.values():
            path.unlink()
        return found

    def _all(
        self, function: str, args_of: Callable[[Child], tuple[Any, ...]], time_limit_s: float
    ) -> Any:
        """Call a function in all processes at once, for they wait for each other.

        Returns the first one's answer, or what went wrong in any of them.
        """
        for child in self._children:
            child.start(function, *args_of(child))
        answers = []
        for child in self._children:
            answer = child.wait(time_limit_s=time_limit_s, watch=self._children)
            if isinstance(answer, ChildFailure | RunFailure):
                if isinstance(answer, RunFailure):
                    answer = dead_among(self._children) or answer
                self._failure = answer
                self.close()  # The others would wait for it for ever.
                return answer
            answers.append(answer)
        return answers[0]

    def _must(self, answer: Any, child: Child) -> Any:
        if isinstance(answer, ChildFailure | RunFailure):
            self.close()
            raise TestbedError(f"{child.name} did not start: {answer.message}")
        return answer
