"""What a training script takes longer under `advisor`: to its captured step, and in each step.

    PYTHONPATH=tests python tests/benchmarks/script_overhead.py FOLDER... [--seeds SEED...]
        [--turns 3] [--seconds 8] [--only start|waiting]

Scripts are those of the folders, and some of `tests/split_scripts.py`. Arguments of `train.py`
stand in a file `train.args` beside it, one a line; paths are absolute there. Each program runs in a
folder of its own, made anew.

**Start.** `advisor analyze SCRIPT` against `python SCRIPT`, in turns, each after a run that counts
nothing; the difference of the medians.

- Under the advisor: from the start of the process until its line `captured …` has come. That holds
  the start of the command, the import of TensorFlow, all that the script does, what hooks take, the
  stop, and making the step ready to be traced. The command is ended then.
- Of the script itself: from the start of the process to the beginning of the call at which the
  advisor stood still, the 34th of a session, say. A script with a single call counts to its end,
  for which the advisor waits, too. A hook of this benchmark in the script's process
  (`script_calls.py`) writes it down.
- What the script does while the advisor waits for other steps is in both, and so not in the
  difference. It is in a column of its own: from the second call to the one that was taken, as the
  script itself takes.
- TensorFlow is imported once by either. The command's fork server begins it in the background as
  the command starts, and the script's own `import tensorflow` finds it there. It imports Keras,
  too, which a script of TF1 would not: that is in the difference.

**Waiting.** How long a step takes with the hooks over how long it takes without, while the advisor
waits for a second step, or for others that take turns. Both run in plain Python, by turns. With
the hooks the script runs as in the advisor's own process, creations of variables are recorded, and
the hooks decide each time whether it is enough, but never stop. A step is from the beginning of one
call to that of the next: what the script does in between is in it. The first calls are left out, as
the function is traced there. A strategy gives way to the default one under the hooks alone, so that
its script may have steps that take *less*.

Left out: what the hooks take once, as at the first call of a function: that is in the start.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from command_runs import LAUNCH
from machine_facts import machine_facts
from script_calls import LEFT_OUT
from split_scripts import split_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CAPTURED = re.compile(r"captured (?P<call>\S+).* at its (?P<number>\d+)(?:st|nd|rd|th) step")
_FEWEST_STEPS = 20
_ALL = 10**9
_LIMIT_S = 600.0
_SEEDS = (900, 901)
_INSIDE = Path(__file__).with_name("script_calls.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A script with its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """When the advisor had a step, which one, and at which of its calls."""

    after_s: float
    call: str
    number: int

    @property
    def most(self) -> int:
        """After how many calls the script alone has come as far: past its end, if it has one."""
        return self.number if self.number > 1 else _ALL


def captured(program: Program) -> Captured:
    """Run the command until it has captured a step, and end it.

    Raises:
        SystemExit: it captures none.
    """
    words = ["analyze", str(program.path), "--testbed", "workers", "-o", "out"]
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        command = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *words, "--", *program.arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        said = []
        assert command.stderr is not None
        try:
            for line in command.stderr:
                after_s = time.monotonic() - began_s
                said.append(line)
                found = _CAPTURED.search(line)
                if found is not None:
                    number = int(found["number"])
                    return Captured(after_s=after_s, call=found["call"], number=number)
        finally:
            command.send_signal(signal.SIGINT)
            command.stderr.read()
            command.wait()
    raise SystemExit(f"{program.path} has no step that is captured:\n{''.join(said)}")


def calls(program: Program, call: str, *, hooks: bool, most: int, seconds: float) -> list[float]:
    """Run a script alone; return when each call of a step began, and last when the run ended.

    In seconds after the start of its process. It ends after so many calls, or seconds past the
    first ones.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "calls.json"
        asked = {"call": call, "hooks": hooks, "most": most, "seconds": seconds, "kept": str(kept)}
        words = [str(_INSIDE), json.dumps(asked), str(program.path), *program.arguments]
        began_s = time.monotonic()
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if not kept.exists():
            raise SystemExit(f"{program.path} failed:\n{ran.stderr}")
        return [each - began_s for each in json.loads(kept.read_text())]


def start_row(program: Program, turns: int) -> tuple[str, Captured]:
    """Return a row of what a start takes, and what was captured."""
    seen = captured(program)
    calls(program, seen.call, hooks=False, most=seen.most, seconds=_LIMIT_S)
    ours, theirs, waits = [], [], []
    for _ in range(turns):
        now = captured(program)
        began = calls(program, now.call, hooks=False, most=now.most, seconds=_LIMIT_S)
        ours.append(now.after_s)
        # The last is when the run ended: where it was ended at that call, the two are the same.
        theirs.append(began[-1])
        waits.append(began[-1] - began[min(1, len(began) - 1)])
        seen = now
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return (
        f"| {program.path.name} | {seen.call}, {seen.number} | {_seconds(ours)} | "
        f"{_seconds(theirs)} | **{median(ours) - median(theirs):.1f} s** ({_spread(differences)}) "
        f"| {_seconds(waits)} |"
    ), seen


def waiting_row(program: Program, seen: Captured, turns: int, seconds: float) -> str:
    """Return a row of what a step takes with hooks and without."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    steps = []
    for turn in range(turns):
        # In turn, so that what else the machine does meets both.
        for hooks in (False, True) if turn % 2 == 0 else (True, False):
            began = calls(program, seen.call, hooks=hooks, most=_ALL, seconds=seconds)
            between = [b - a for a, b in pairwise(began[:-1])][LEFT_OUT:]
            if len(between) < _FEWEST_STEPS:
                return f"| {program.path.name} | {seen.call} | fewer than {_FEWEST_STEPS} steps |"
            taken[hooks].append(median(between) * 1e3)
            steps.append(len(between))
    ratios = [a / b - 1 for a, b in zip(taken[True], taken[False], strict=True)]
    return (
        f"| {program.path.name} | {seen.call} | {median(taken[False]):.2f} ms | "
        f"{median(taken[True]):.2f} ms | **{median(ratios):+.1%}** "
        f"({min(ratios):+.1%} to {max(ratios):+.1%}) | {min(steps)} |"
    )


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.1f} s"


def _spread(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in sorted(values))


def programs(folders: Sequence[Path], seeds: Sequence[int], made: Path) -> list[Program]:
    """Return the scripts of folders and seeds; the latter are written into a folder."""
    found = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    for seed in seeds:
        path = made / f"split_{seed}.py"
        path.write_text(split_script(seed).text)
        found.append(path)
    return [Program(path=path.resolve(), arguments=_arguments(path)) for path in found]


def _arguments(path: Path) -> tuple[str, ...]:
    beside = path.with_suffix(".args")
    return tuple(beside.read_text().splitlines()) if beside.exists() else ()


def main() -> None:
    """Print both tables in Markdown, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help="with scripts")
    parser.add_argument("--seeds", type=int, nargs="*", default=_SEEDS, help="of split scripts")
    parser.add_argument("--turns", type=int, default=3, help="of each (3)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of steps in a turn (8)")
    parser.add_argument("--only", choices=("start", "waiting"), help="one of the two tables")
    asked = parser.parse_args()
    print(machine_facts(), flush=True)
    with tempfile.TemporaryDirectory() as made:
        scripts = programs(asked.folders, asked.seeds, Path(made))
        seen = []
        if asked.only != "waiting":
            print(
                "\n| script | step, call | advisor | script | longer (each) | waited, of script |"
            )
            print("|---|---|---|---|---|---|", flush=True)
            for program in scripts:
                row, step = start_row(program, asked.turns)
                seen.append(step)
                print(row, flush=True)
        if asked.only == "start":
            return
        seen = seen or [captured(program) for program in scripts]
        print("\n| script | step | without hooks | with hooks | longer (least, most) | steps |")
        print("|---|---|---|---|---|---|", flush=True)
        for program, step in zip(scripts, seen, strict=True):
            print(waiting_row(program, step, asked.turns, asked.seconds), flush=True)


if __name__ == "__main__":
    main()
