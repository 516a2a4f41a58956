"""Chaos: whatever hits an analysis, nothing of it is left behind, and it says what came of it.

A case hits a real analysis on workers at a moment of it: a signal to the command or to one of its
processes, a pause, a disk that is full, an output folder that vanishes. The model starts a process
and detaches another. Afterwards no process runs (so that no port is open), no temporary file and no
half output lies about, and what is promised holds: the exit code, one clear error, or an analysis
in which all that was not hit has its result.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from campaign import run_campaign
from command_runs import LAUNCH, Command, wait_until

from placement_advisor.files.output import CONTENT

CASES = 200
_MODEL = """
import os, subprocess
import keras
import numpy as np
import tensorflow as tf

subprocess.Popen(["sleep", "600"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execlp("sleep", "sleep", "600")
    os._exit(0)
os.wait()

keras.utils.set_random_seed(7)
left, right = keras.Input((16,), 8, name="left"), keras.Input((16,), 8, name="right")
towers = [keras.layers.Dense(8, activation="relu")(side) for side in (left, right)]
model = keras.Model([left, right], keras.layers.Dot(axes=1)(towers))
model.compile(optimizer="sgd", loss="mean_squared_error")
values = np.random.default_rng(7).normal(size=(8, 16)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices(((values, values[::-1]), values[:, :1])).batch(8)
"""
# Processes say who they are, and a machine that is busy is not calibrated anew each time.
_LAUNCH = f"""
import os
from placement_advisor.processes import children
from placement_advisor.testbed import costing
costing.UNSTEADY_P90 = float("inf")
fork = children.Child.__init__
def noted(self, name):
    fork(self, name)
    with open(os.environ["TMPDIR"] + ".pids", "a") as file:
        print(name, self.pid, file=file)
children.Child.__init__ = noted
{LAUNCH}
"""
_FEW = ("--testbed", "workers", "--rounds", "3", "--steps", "1", "--effort", "0.01")
# What stderr says when a stage begins, and about how long it lasts on an idle machine.
_STAGES = {
    "importing TensorFlow": 4.0,
    "loading": 0.4,
    "tracing": 0.4,
    "starting devices": 0.6,
    "measuring op times": 2.0,
    "timing rounds": 0.7,
    "timing the dataset alone": 3.0,
    "profiling": 1.0,
    "writing reports": 0.8,
}
_BEFORE_WORKERS = ("importing TensorFlow", "loading", "tracing")
_BEFORE_ROUNDS = (*_BEFORE_WORKERS, "starting devices", "measuring op times")
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
HITS = (
    *(f"{number} command" for number in (*_ENDING, "SIGKILL", "pause")),
    *(f"SIGKILL {victim}" for victim in ("worker", "client", "loader", "mirrored")),
    *(f"pause {victim}" for victim in ("worker", "client")),
    "full output",
    "full temp",
    "vanished output",
)
# Pictures are drawn only where there is something to show.
_ALWAYS = {
    "analysis.json",
    "report.html",
    "report.md",
    "graph.json.gz",
    "placements",
    "predictions",
    "tensorboard",
}
_LONGEST_PAUSE_S = 2.0
_DISK_MB = 24
_LIMIT_S = 240.0
# The issue allows two seconds; that is tested where nothing else runs.
_ENDS_WITHIN_S = 15.0
_INTERRUPTED, _ERROR = 130, 2


@dataclass(frozen=True)
class _Case:
    how: str
    victim: str
    stage: str
    after_s: float

    @property
    def candidates(self):
        return "towers,batch" + (",mirrored" if self.victim == "mirrored" else "")


def cases():
    """Return hits at moments that are drawn with a fixed seed, as many of each kind."""
    draw = random.Random(20)
    found = []
    for number in range(CASES):
        hit = HITS[number % len(HITS)]
        runs_late = hit.endswith(("worker", "client"))
        stage = draw.choice([s for s in _STAGES if not (runs_late and s in _BEFORE_WORKERS)])
        found.append(f"{number} {hit} {draw.uniform(0, _STAGES[stage]):.2f} s into {stage}")
    return found


def _parsed(case):
    head, _, stage = case.partition(" s into ")
    _, how, victim, after = head.split()
    return _Case(how, victim, stage, float(after))


def examine(case):
    """Run an analysis, hit it, and return how it ended and which promises it broke."""
    asked = _parsed(case)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        folders = {"output": home / "disk", "temp": home / "temp"}
        for folder in folders.values():
            folder.mkdir()
        if asked.how == "full" and not stack.enter_context(_small_disk(folders[asked.victim])):
            return {"not_run": "no tmpfs can be mounted here"}
        output = folders["output"] / "out"
        command = stack.enter_context(_command(home, output, asked.candidates))
        was_hit = _reached(command, asked.stage, asked.after_s) and _hit(command, home, asked)
        try:
            ran = command.wait(timeout_s=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"was_hit": was_hit, "broken": ["does not end"], "said": command.err[-500:]}
        wait_until(lambda: not command.processes(), _ENDS_WITHIN_S)
        processes = command.names()
        for folder in folders.values():
            (folder / "filler").unlink(missing_ok=True)
        files = sorted(path.name for path in folders["temp"].iterdir())
        state = _state(output)
        lost = _lost(output) if state == "complete" else []
        broken = _broken(asked, ran, state, lost, was_hit)
        broken += [f"processes left: {processes}"] * bool(processes)
        broken += [f"files left: {files}"] * bool(files)
        return {
            "was_hit": was_hit,
            "code": ran.code,
            "output": state,
            "lost": lost,
            "broken": broken,
            "said": (ran.err[-1_500:] if broken else ran.err.strip().rpartition("\n")[2]),
        }


def _command(home, output, candidates):
    model = home / "model.py"
    model.write_text(_MODEL)
    words = ("analyze", str(model), "-o", str(output), *_FEW, "--candidates", candidates)
    return Command(*words, temp=home / "temp", launch=_LAUNCH)


def _reached(command, stage, after_s):
    """Wait for a moment; return whether the command still ran then."""
    wait_until(lambda: stage in command.err or command.process.poll() is not None, _LIMIT_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.process.wait(after_s)
    return command.process.poll() is None


def _hit(command, home, case):
    """Do it; return whether there was anything to hit."""
    if case.how == "vanished":
        shutil.rmtree(home / "disk", ignore_errors=True)
    elif case.how == "full":
        _fill(home / {"output": "disk"}.get(case.victim, case.victim) / "filler")
    else:
        pid = command.process.pid if case.victim == "command" else _pid(command, home, case.victim)
        if pid is None:
            return False
        try:
            if case.how == "pause":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(case.after_s % _LONGEST_PAUSE_S)
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.Signals[case.how])
        except ProcessLookupError:
            return False
    return True


def _pid(command, home, victim):
    """Return the victim that was started last, waiting for one; None if the command ended."""
    noted = home / "temp.pids"

    def alive():
        lines = noted.read_text().splitlines() if noted.exists() else []
        pids = [int(line.split()[-1]) for line in lines if line.startswith(victim)]
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    wait_until(lambda: bool(alive()) or command.process.poll() is not None, _LIMIT_S)
    return next(reversed(alive()), None)


@contextlib.contextmanager
def _small_disk(folder):
    """Make a folder a disk of its own; False where the system does not let us."""
    size = f"size={_DISK_MB}m"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=False, capture_output=True
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(file):
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        for size in (65_536, 1):
            with contextlib.suppress(OSError):
                while filler.write(bytes(size)):
                    pass


def _state(output):
    entries = {path.name for path in output.iterdir()} if output.exists() else set()
    if not entries:
        return "none"
    return "complete" if _ALWAYS <= entries <= set(CONTENT) else f"half: {sorted(entries)}"


def _lost(output):
    """Return the candidates that were to run and have no result."""
    found = json.loads((output / "analysis.json").read_text())["candidates"]
    return [candidate["family"] for candidate in found if candidate["failure"] is not None]


def _broken(case, ran, state, lost, was_hit):
    """Return what was promised of such a case and is not so."""
    is_killed = was_hit and case.how == "SIGKILL"
    done = ran.code == 0 and state == "complete"
    refused = ran.code == _ERROR and state == "none" and "advisor: error: " in ran.err
    broken = []
    if "Traceback" in ran.err or "this is a bug" in ran.err:
        broken.append("a bug is reported")
    if state.startswith("half"):
        broken.append(state)
    if not was_hit or case.how == "pause":
        holds = done
    elif case.victim == "command" and case.how == "SIGKILL":
        holds = ran.code == -signal.SIGKILL
    elif case.victim == "command":
        holds = ran.code == _INTERRUPTED or done
    elif case.how in ("full", "vanished"):
        holds = refused or done
    else:  # One process was killed: before rounds run, there may be nothing to go on with.
        holds = done or (refused and case.stage in _BEFORE_ROUNDS)
    if len(lost) > is_killed:
        broken.append(f"candidates lost: {lost}")
    if not holds:
        broken.append(f"ends with {ran.code}, output {state}")
    return broken


def table(results):
    """Return for each hit how it ended, and below what was broken."""
    rows = [
        "| hit | cases | hit in time | done | one error | interrupted, killed | as promised |",
        "|---|---|---|---|---|---|---|",
    ]
    by_hit = defaultdict(list)
    for result in results:
        if "not_run" not in result:
            by_hit[" ".join(result["case"].split()[1:3])].append(result)
    for hit in HITS:
        of_it = by_hit[hit]
        codes = [result.get("code") for result in of_it]
        counts = (
            len(of_it),
            sum(result["was_hit"] for result in of_it),
            codes.count(0),
            codes.count(_ERROR),
            codes.count(_INTERRUPTED) + codes.count(-signal.SIGKILL),
            sum(not result["broken"] for result in of_it),
        )
        rows.append(f"| {hit} | {' | '.join(map(str, counts))} |")
    rows += [""] + [
        f"- {result['case']}: {'; '.join(result['broken'])}"
        for result in results
        if result.get("broken")
    ]
    not_run = [result for result in results if "not_run" in result]
    if not_run:
        rows.append(f"- {len(not_run)} cases were not run: {not_run[0]['not_run']}")
    return "\n".join(rows)


@contextlib.contextmanager
def own_cache():
    """Keep calibrations and compiled code of these runs away from the user's."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory(prefix="chaos-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            _calibrate(Path(folder))
            yield
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def _calibrate(home):
    with _command(home, home / "out", "towers,batch") as command:
        ran = command.wait(timeout_s=_LIMIT_S)
    if ran.code != 0:
        sys.exit(f"an analysis fails that nothing hits:\n{ran.err}")


if __name__ == "__main__":
    with own_cache():
        run_campaign("chaos", cases(), examine, table)
