"""Public example scripts of Keras, unedited: which of them the advisor takes as training scripts.

    python tests/benchmarks/public_scripts.py FOLDER

FOLDER holds checkouts of keras-team/keras and keras-team/keras-io, as `keras` and `keras-io`. Tried
are guides and demos of the first, and `DRAWN` of the examples of the second, in an order that
``SEED`` draws. Each runs under plain Python, then under `advisor trace`. A script that fails under
plain Python is excluded, with its last line as the proof: of the examples the next one that was
drawn is tried in its place. Data sets are arrays of the same shape, from `public_data/`. Weights
are not there, so what loads them fails.

Under plain Python a script is stopped at the second call of a step of `fit`, or after a time limit.
Rows are kept in FOLDER as they come, so that a further call goes on where one has ended. Printed
are tables in Markdown.
"""

import argparse
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from result_lines import add, lines_of

# Committed before any script was tried.
SEED = 20_261_128
DRAWN = 20
GUIDES = (
    "guides/*tensorflow*.py",
    "guides/functional_api.py",
    "guides/sequential_model.py",
    "guides/training_with_built_in_methods.py",
    "guides/writing_your_own_callbacks.py",
    "guides/understanding_masking_and_padding.py",
    "guides/making_new_layers_and_models_via_subclassing.py",
    "examples/demo_*.py",
)
_OTHER_BACKENDS = ("_jax_", "_torch_")
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
# What errors within layers and graphs begin with; a further line says what happened.
_NO_CAUSE = (".call().", "Graph execution error:")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PATH = re.compile(r"/\S*/(?=\w[\w-]*\.py)")
_ROWS = "public_scripts.jsonl"
_ROOT = Path(__file__).parents[2]
_DATA = Path(__file__).parent / "public_data"
# Long enough for a step of each script on two cores; what has not failed until then does not fail.
_PLAIN_S = 180.0
# The advisor has limits of its own, which come first.
_ADVISOR_S = 1_000.0
_WIDEST = 150  # Characters of a message in a table.
# A script that asks for more would take the machine with it.
_MEMORY_BYTES = 12 * 2**30


class Run(NamedTuple):
    """How a child ended: its exit code, None where the time limit came first, and what it wrote."""

    code: int | None
    seconds: float
    err: str

    @property
    def last_line(self):
        """What a Python error says, of that of a layer the cause; else the last line."""
        lines = [line.strip() for line in _COLOURS.sub("", self.err).splitlines() if line.strip()]
        errors = [number for number, line in enumerate(lines) if _ERROR.match(line)]
        if not errors:
            return lines[-1] if lines else ""
        line, *rest = lines[errors[-1] :]
        if rest and line.endswith(_NO_CAUSE):
            nodes = [number for number, each in enumerate(rest) if each.startswith("[[{{node")]
            return f"{line} {rest[nodes[0] - 1] if nodes else rest[0]}"
        return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print the order only")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if asked.list:
        print("\n".join([*listed(folder), *drawn(folder)]))
        return
    rows = lines_of(folder / _ROWS)
    for script, is_drawn in _wanted(folder, rows):
        row = {"script": script, "drawn": is_drawn, **tried(str(folder / script))}
        rows.append(row)
        add(folder / _ROWS, row)
    _print(rows)


def listed(folder):
    """Return the scripts that are named, relative to the folder."""
    paths = [path for pattern in GUIDES for path in sorted((folder / "keras").glob(pattern))]
    names = [path.relative_to(folder).as_posix() for path in paths]
    return [name for name in names if not any(other in name for other in _OTHER_BACKENDS)]


def drawn(folder):
    """Return all examples in the order in which they are tried."""
    paths = (folder / "keras-io" / "examples").rglob("*.py")
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    return random.Random(SEED).sample(names, len(names))


def _wanted(folder, rows):
    """Go over the scripts that have no row, as long as some are wanted; rows come meanwhile."""
    known = {row["script"] for row in rows}
    yield from ((script, False) for script in listed(folder) if script not in known)
    for script in drawn(folder):
        if sum(row["drawn"] and not row["excluded"] for row in rows) == DRAWN:
            return
        if script not in known:
            yield script, True


def tried(path):
    """Run a script by itself and under the advisor; one that fails by itself is excluded."""
    plain = _run([path], _PLAIN_S, PUBLIC_SCRIPTS_STOP="1")
    if plain.code not in (0, None):
        return {"plain": plain.last_line or f"ended by signal {-plain.code}", "excluded": True}
    said = "runs" if plain.code == 0 else f"runs for {_PLAIN_S:.0f} s"
    graph = "--output=step.graph.json.gz"
    command = ["-m", "placement_advisor.cli.app", "trace", path, "--json", graph]
    with tempfile.TemporaryFile("w+") as out:
        run = _run(command, _ADVISOR_S, out=out)
        out.seek(0)
        model = json.load(out)["model"] if run.code == 0 else {}
    return {
        "plain": said,
        "excluded": False,
        "captured": _PATH.sub("", model["chosen"]) if model else None,
        "mode": model.get("mode"),
        "refused": None if model else _refusal(run),
        "seconds": round(run.seconds, 1),
    }


def _refusal(run):
    """Return what the advisor has said against it."""
    if run.code is None:
        return f"no answer after {_ADVISOR_S:.0f} s"
    _, found, said = run.err.partition("error: ")
    return _PATH.sub("", " / ".join(said.split("\n"))) if found else run.last_line


def _run(words, limit_s, out=subprocess.DEVNULL, **variables):
    """Run Python in a folder of its own, with stubs of data sets, and end all that it started."""
    with (
        tempfile.TemporaryDirectory() as here,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        ours = {
            "PYTHONPATH": f"{_DATA}{os.pathsep}{_ROOT}",
            "KERAS_BACKEND": "tensorflow",
            "KERAS_HOME": here,
            "MPLBACKEND": "Agg",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        began_s = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, *words],
            cwd=here,
            env={**os.environ, **ours, **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = child.wait(limit_s)
        seconds = time.monotonic() - began_s
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        err.seek(0)
        return Run(code, seconds, err.read())


def _limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _print(rows):
    for drawn, title in ((False, "Guides and demos"), (True, "Examples that were drawn")):
        ours = [row for row in rows if row["drawn"] is drawn]
        taken = [row for row in ours if not row["excluded"]]
        reached = sum(row["captured"] is not None for row in taken)
        print(f"\n**{title}: {reached} of {len(taken)}**, {len(ours) - len(taken)} left out\n")
        print("| script | what was seen | s |\n|---|---|---|")
        for row in taken:
            print(f"| {Path(row['script']).stem} | {_seen(row)} | {row['seconds']:.0f} |")
        print("\n| left out | what it says under plain Python |\n|---|---|")
        for row in ours:
            if row["excluded"]:
                print(f"| {Path(row['script']).stem} | {row['plain'][:_WIDEST]} |")


def _seen(row):
    """Return what was captured, its lines without their file, or the refusal."""
    if row["captured"] is None:
        return f"**missed**: {row['refused']}"
    seen = row["captured"].removeprefix("captured ").removesuffix(", at its 2nd step")
    return re.sub(r" at [\w-]+\.py:(\d+)", r", line \1", seen)


if __name__ == "__main__":
    main()
