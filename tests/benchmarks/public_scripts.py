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

import typer
from tables import table_head, table_row

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
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
# What errors within layers and graphs begin with; a further line says what happened.
_NO_CAUSE = (".call().", "Graph execution error:")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PATH = re.compile(r"/\S*/(?=\w[\w-]*\.py)")
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


def main(folder: Path):
    folder = folder.resolve()
    path = folder / "public_scripts.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    for script, is_drawn in _wanted(folder, rows):
        rows.append({"script": script, "drawn": is_drawn, **tried(str(folder / script))})
        with path.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(rows[-1], flush=True)
    _print(rows)


def _wanted(folder, rows):
    """Go over the scripts that have no row, as long as some are wanted; rows come meanwhile."""
    known = {row["script"] for row in rows}
    keras, examples = folder / "keras", folder / "keras-io" / "examples"
    listed = [path for pattern in GUIDES for path in sorted(keras.glob(pattern))]
    for path in listed:
        name = path.relative_to(folder).as_posix()
        if name not in known and not any(other in name for other in ("_jax_", "_torch_")):
            yield name, False
    names = sorted(path.relative_to(folder).as_posix() for path in examples.rglob("*.py"))
    for name in random.Random(SEED).sample(names, len(names)):
        if sum(row["drawn"] and not row["excluded"] for row in rows) == DRAWN:
            return
        if name not in known:
            yield name, True


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
    _, found, told = run.err.partition("error: ")
    refused = _PATH.sub("", " / ".join(told.split("\n"))) if found else run.last_line
    if run.code is None:
        refused = f"no answer after {_ADVISOR_S:.0f} s"
    return {
        "plain": said,
        "excluded": False,
        "captured": _PATH.sub("", model["chosen"]) if model else None,
        "mode": model.get("mode"),
        "refused": None if model else refused,
        "seconds": round(run.seconds, 1),
    }


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
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES,) * 2),
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


def _print(rows):
    for drawn, title in ((False, "Guides and demos"), (True, "Examples that were drawn")):
        ours = [row for row in rows if row["drawn"] is drawn]
        taken = [row for row in ours if not row["excluded"]]
        reached = sum(row["captured"] is not None for row in taken)
        print(f"\n**{title}: {reached} of {len(taken)}**, {len(ours) - len(taken)} left out\n")
        print(table_head("script | what was seen | s"))
        for row in taken:
            seen = row["captured"] or f"**missed**: {row['refused']}"
            print(table_row(Path(row["script"]).stem, seen, f"{row['seconds']:.0f}"))
        print(f"\n{table_head('left out | what it says under plain Python')}")
        for row in ours:
            if row["excluded"]:
                print(table_row(Path(row["script"]).stem, row["plain"][:_WIDEST]))


if __name__ == "__main__":
    typer.run(main)
