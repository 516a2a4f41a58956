"""Faults of hosts: a host dies, hangs or loses its link, in each stage of an analysis over two.

A case is a real `advisor analyze --hosts` between two hosts of the lab, where control and data go
over the same cable, as with ssh. At some moment a fault hits the second host, or the command. It
must be noticed within 10 s; then the command ends by itself, with a report or one clear error, and
nothing stays on either host: no process, no scratch folder. A host that was stopped frees itself
when it goes on, one that was unplugged where it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil
from campaign import run_campaign
from command_runs import LAUNCH, wait_until
from network_lab.lab import lab
from network_lab.two_hosts import TwoHosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from network_lab.lab import Lab

_MODEL = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
left, right = keras.Input((16,), 8, name="left"), keras.Input((16,), 8, name="right")
towers = [keras.layers.Dense(8, activation="relu")(side) for side in (left, right)]
model = keras.Model([left, right], keras.layers.Dot(axes=1)(towers))
model.compile(optimizer="sgd", loss="mean_squared_error")
values = np.random.default_rng(7).normal(size=(8, 16)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices(((values, values[::-1]), values[:, :1])).batch(8)
"""
# Notes which process is what, and when the command learns that one is gone. A machine that is busy
# is not calibrated anew each time.
_NOTING = f"""
import os, time
from placement_advisor.remote_hosts import remote_child
from placement_advisor.testbed import calibrate_hosts
from placement_advisor.processes import children
from placement_advisor.processes.calls import CallFailure
calibrate_hosts.UNSTEADY_P90 = float("inf")
def note(*words):
    with open(os.environ["NOTES"], "a") as file:
        print(*words, file=file)
def noting(kind, name):
    inner = getattr(kind, name)
    def outer(*args, **options):
        answer = inner(*args, **options)
        if isinstance(answer, CallFailure):
            note("failure", time.time(), answer.message.splitlines()[0])
        return answer
    setattr(kind, name, outer)
noting(children.Child, "wait_for_answer")
noting(remote_child.RemoteChild, "wait_for_answer")
fork = remote_child.RemoteChild.__init__
def noted(self, name, number, questions):
    fork(self, name, number, questions)
    note("fork", name, self.pid)
remote_child.RemoteChild.__init__ = noted
{LAUNCH}
"""
_LOADING = "loading /"
STAGES = {
    "starting hosts": 0.4,
    _LOADING: 1.0,
    "starting devices": 1.0,
    "calibrating h1": 1.0,
    "calibrating localhost ↔": 1.0,
    "measuring op times on one device": 1.0,
    "measuring collectives": 0.5,
    "preparing": 0.3,
    "timing rounds": 3.0,
    "profiling": 0.1,
}
_CALIBRATING = ("calibrating h1", "calibrating localhost ↔")
_OF_HOST = ("dies", "hangs", "unplugged")
_OF_PROCESS = ("service", "worker", "relay")
# What is started anew.
_REPLACED = ("worker", "relay")
_OF_COMMAND = ("SIGKILL", "SIGTERM", "SIGINT")
# Those of a process need the process.
_EARLY = ("starting hosts", _LOADING, "starting devices")
FAULTS = (*_OF_HOST, *_OF_PROCESS, *_OF_COMMAND)
NOTICED_WITHIN_S = 10.0
# The limit, and what the machine that tests needs to look.
_FREE_WITHIN_S = 12.0
_LIMIT_S = 300.0
_SERVICE = "worker --stdio"
_LOST, _ERROR = "host h1 is lost", "advisor: error: "
_FEW = ("--steps", "2", "--effort", "0.01")


def cases() -> list[str]:
    """Return every fault in every stage in which there is something that it can hit."""
    return [
        f"{fault} in {stage}"
        for stage in STAGES
        for fault in FAULTS
        if not (stage in _EARLY and fault in _REPLACED)
    ]


def examine(case: str) -> dict[str, Any]:
    """Run an analysis, hit it, and return how it ended and which promises it broke."""
    fault, _, stage = case.partition(" in ")
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, lab(hosts=2) as network:
        run = _Run(network, Path(folder), fault, stage)
        if not run.reaches(stage):
            return {"was_hit": False, "broken": ["stage not reached"], "said": run.said[-800:]}
        time.sleep(STAGES[stage])
        hit_s = time.time()
        if not run.hit(fault):
            return {"was_hit": False, "broken": ["nothing to hit"], "said": run.said[-800:]}
        noticed_s = run.noticed_s(fault, hit_s)
        try:
            code: int | None = run.command.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        ended_s = round(time.time() - hit_s, 1)
        return {
            "was_hit": True,
            "noticed_s": noticed_s,
            "ended_s": ended_s,
            "code": code,
            **run.remains(fault),
            **run.judged(fault, code, noticed_s),
        }


class _Run:
    """An analysis over two hosts of a lab."""

    def __init__(self, network: Lab, folder: Path, fault: str, stage: str) -> None:
        self._network, self._output = network, folder / "out"
        self._notes, self._err, self._temp = folder / "notes", folder / "err", folder / "temp"
        self._temp.mkdir()
        self._notes.touch()
        # One that takes long, where it is hit meanwhile.
        model = f"import time\ntime.sleep(60)\n{_MODEL}" if stage == _LOADING else _MODEL
        (folder / "model.py").write_text(model)
        environment = {**os.environ, "TMPDIR": str(self._temp), "NOTES": str(self._notes)}
        if stage in _CALIBRATING:
            environment["XDG_CACHE_HOME"] = str(folder / "cache")
        self._hosts = TwoHosts(network, folder, environment)
        # Nothing that goes on after the fault is to take long.
        is_long = stage == "timing rounds" and fault not in _REPLACED
        rounds = "300" if is_long else "12"
        candidates = "towers" + (",mirrored,batch" if stage == "measuring collectives" else "")
        words = ["analyze", str(folder / "model.py"), "-o", str(self._output), *self._hosts.options]
        words += ["--rounds", rounds, "--candidates", candidates, *_FEW]
        with self._err.open("w") as err:
            self.command = self._hosts.run(
                "-c", _NOTING, *words, stdout=subprocess.DEVNULL, stderr=err
            )

    @property
    def said(self) -> str:
        """What the command has said."""
        return self._err.read_text()

    def reaches(self, stage: str) -> bool:
        """Wait for a stage; return whether it came."""
        wait_until(lambda: stage in self.said or self.command.poll() is not None, _LIMIT_S)
        return self.command.poll() is None

    def hit(self, fault: str) -> bool:
        """Do it; return whether there was anything to hit."""
        if fault in _OF_COMMAND:
            self.command.send_signal(signal.Signals[fault])
        elif fault == "unplugged":
            self._network.unplug("h1")
        elif fault in _OF_HOST:
            if fault == "dies":  # As when the power fails: nobody takes leave.
                self._network.unplug("h1")
            self._signal_all(signal.SIGKILL if fault == "dies" else signal.SIGSTOP)
        else:
            pid = self._service() if fault == "service" else self._forked(fault)
            if pid is None:
                return False
            os.kill(pid, signal.SIGKILL)
        return True

    def noticed_s(self, fault: str, hit_s: float) -> float | None:
        """Wait until the command says that something is gone; return how long that took."""

        def noticed() -> float | None:
            if fault in _OF_COMMAND:
                return time.time() if self.command.poll() is not None else None
            failures = [line.split()[1] for line in self._noted() if line.startswith("failure")]
            after = [float(at_s) for at_s in failures if float(at_s) > hit_s]
            if after:
                return after[0]
            says = _LOST in self.said or _ERROR in self.said or self.command.poll() is not None
            return time.time() if says else None

        wait_until(lambda: noticed() is not None, _LIMIT_S)
        at_s = noticed()
        return None if at_s is None else round(at_s - hit_s, 1)

    def remains(self, fault: str) -> dict[str, Any]:
        """Return what is left on the hosts, and after how long nothing was."""
        if fault == "hangs":
            self._signal_all(signal.SIGCONT)
        begun_s = time.monotonic()
        # Nobody is left to remove the files of a host that has died: the next command there does.
        files = (lambda: []) if fault == "dies" else self._files
        running = self._hosts.running
        wait_until(lambda: not running() and not files(), _FREE_WITHIN_S)
        return {
            "free_s": round(time.monotonic() - begun_s, 1),
            "left": [each[-80:] for each in running().values()] + files(),
        }

    def judged(self, fault: str, code: int | None, noticed_s: float | None) -> dict[str, Any]:
        """Return how the command ended, and what it had not promised."""
        has_report = (self._output / "analysis.json").exists()
        verdict, lost = None, []
        if has_report:
            analysis = json.loads((self._output / "analysis.json").read_text())
            verdict = analysis["recommendation"]["verdict"]
            lost = [c["name"] for c in analysis["candidates"] if c["failure"] is not None]
        broken = []
        # What came when all had been measured costs nothing, and need not be noticed.
        is_whole = code == 0 and has_report and not lost and _LOST not in self.said
        if not is_whole and (noticed_s is None or noticed_s > NOTICED_WITHIN_S):
            broken.append(f"noticed after {noticed_s} s")
        if "Traceback" in self.said or "this is a bug" in self.said:
            broken.append("a bug is reported")
        if fault in _OF_COMMAND:
            ends = code == {"SIGKILL": -signal.SIGKILL}.get(fault, 130)
        else:
            ends = (code == 0 and has_report) or (code == 2 and _ERROR in self.said)
        if not ends:
            broken.append(f"ends with {code}, {'a' if has_report else 'no'} report")
        said = [line for line in self.said.splitlines() if "error" in line or "warning" in line]
        if broken:
            said = [self.said[-2_000:]]
        return {"verdict": verdict, "lost": lost, "broken": broken, "said": said}

    def _noted(self) -> list[str]:
        return self._notes.read_text().splitlines()

    def _forked(self, kind: str) -> int | None:
        """Return the process of a kind on the second host that was started last and lives."""
        name = {"worker": "h1:0", "relay": "relay-h1"}[kind]

        def alive() -> list[int]:
            lines = [line.split() for line in self._noted() if line.startswith("fork ")]
            return [int(pid) for _, of, pid in lines if of == name and psutil.pid_exists(int(pid))]

        wait_until(lambda: bool(alive()) or self.command.poll() is not None, _LIMIT_S)
        return next(reversed(alive()), None)

    def _service(self) -> int | None:
        def found() -> list[int]:
            return [pid for pid, words in self._hosts.running("h1").items() if _SERVICE in words]

        wait_until(lambda: bool(found()) or self.command.poll() is not None, _LIMIT_S)
        return next(iter(found()), None)

    def _signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all of the second host, until nobody new is there."""
        told: set[int] = set()
        while new := set(self._network.processes("h1")) - told:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= new

    def _files(self) -> list[str]:
        return [path.name for path in self._temp.iterdir()]


def table(results: list[dict[str, Any]]) -> str:
    """Return how long each fault took to be noticed in each stage, and what was broken."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for result in results:
        fault, _, stage = result["case"].partition(" in ")
        taken = f"{result['noticed_s']} s" if result["was_hit"] else "not hit"
        bad = bool(result["broken"] or result.get("left"))
        found[stage][fault] = f"**{taken}**" if bad else taken
    rows = [f"| noticed after | {' | '.join(FAULTS)} |", f"|---{'|---' * len(FAULTS)}|"]
    for stage, of_stage in found.items():
        rows.append(f"| {stage} | {' | '.join(of_stage.get(f, '') for f in FAULTS)} |")
    rows += [""] + [
        f"- {result['case']}: {'; '.join([*result['broken'], *result.get('left', ())])}"
        for result in results
        if result["broken"] or result.get("left")
    ]
    return "\n".join(rows)


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """Keep figures of these hosts away from the user's; cases use what the first one measured."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-cache-") as cache,
        mock.patch.dict(os.environ, XDG_CACHE_HOME=cache),
    ):
        yield


if __name__ == "__main__":
    with own_cache():
        run_campaign("host_faults", cases(), examine, table)
