"""What `advisor check` takes beyond importing TensorFlow and tracing the model.

Each run is a process of its own, as in CI: from the start of Python to the text of the report, less
what the child takes that imports TensorFlow, loads and traces. The first run compiles the simulator
into an empty cache, as on a fresh machine; the others find it there. On a busy machine the CPU time
of the process, which holds no child's, tells more than the clock. A lock file is written before,
so that each run compares; the model differs from the locked one, so that all of it is judged.

    python tests/benchmarks/check.py [--model deepconn] [--placements towers,auto] [--runs 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from silent import Silent

SAMPLES = Path(__file__).parents[2] / "sample_models"
LIMIT_S = 2.0
HARDWARE = "2xV100-NVLink"


def one_run(folder: Path, began_s: float, *, update: bool) -> dict[str, float]:
    """Check the project in a folder; return the seconds of each stage."""
    import placement_advisor.cli.app  # noqa: F401 - the command imports it
    from placement_advisor.check import check_models, check_step
    from placement_advisor.check.project_files import read_config
    from placement_advisor.report.check_report import check_as_text

    spans = {"python": time.monotonic() - began_s, "trace": 0.0}

    def timed(owner: object, name: str, stage: str) -> None:
        call = getattr(owner, name)

        def wrapped(*args: object, **options: object) -> object:
            called_s = time.monotonic()
            try:
                return call(*args, **options)
            finally:
                spans[stage] = spans.get(stage, 0.0) + time.monotonic() - called_s

        setattr(owner, name, wrapped)

    timed(check_models._Checking, "_traced", "trace")
    timed(check_models, "read_lock", "read_lock")
    for name in ("roofline_by_place", "lay_out", "judge"):
        timed(check_step, name, name)
    timed(check_step.Predictor, "predict", "predict")
    options = check_models.CheckOptions(update=update)
    result = check_models.check_models(read_config(folder / "pyproject.toml"), options, Silent())
    check_as_text(result)
    assert result.results[0].after is not None, result
    spans["CPU time of all"] = time.process_time()
    spans["whole"] = time.monotonic() - began_s
    return spans


def run(folder: Path, *words: str) -> dict[str, float]:
    """Return the seconds of each stage of a run in a process of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "compiled")}
    began_s = time.monotonic()  # One clock for all processes.
    command = [sys.executable, __file__, "--folder", str(folder), "--began-s", str(began_s), *words]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    spans: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return spans


def project(folder: Path, model: str, placement: str) -> None:
    folder.mkdir()
    (folder / "model.py").write_text((SAMPLES / f"{model}.py").read_text())
    (folder / "pyproject.toml").write_text(
        f'[tool.advisor]\nhardware = "{HARDWARE}"\n'
        f'[[tool.advisor.models]]\npath = "model.py"\nplacement = "{placement}"\n'
    )


def beyond(spans: dict[str, float]) -> float:
    return spans["whole"] - spans["trace"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="deepconn")
    parser.add_argument("--placements", default="towers,auto")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--began-s", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--update", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        print(json.dumps(one_run(options.folder, options.began_s, update=options.update)))
        return
    for placement in options.placements.split(","):
        with tempfile.TemporaryDirectory() as temp:
            folder = Path(temp) / "project"
            project(folder, options.model, placement)
            first = run(folder, "--update")
            # Another graph than the locked one: all of the check has to be done.
            lock = folder / "placements.lock.json"
            locked = json.loads(lock.read_text())
            locked["models"]["model.py"] |= {"graph": "0", "placed": "0"}
            lock.write_text(json.dumps(locked))
            others = [run(folder) for _ in range(options.runs)]
        middle = sorted(others, key=beyond)[len(others) // 2]
        stages = ", ".join(f"{k} {v:.2f}" for k, v in middle.items() if k not in ("whole", "trace"))
        took_s = median(map(beyond, others))
        print(f"{options.model}, {placement}, {HARDWARE}: beyond import and trace, in s")
        print(f"  first run ever   {beyond(first):.2f} (trace {first['trace']:.2f})")
        print(
            f"  median of {len(others)}      {took_s:.2f} (trace {middle['trace']:.2f}; {stages})"
        )
        print(f"  {'within' if took_s <= LIMIT_S else 'OVER'} {LIMIT_S:g}")


if __name__ == "__main__":
    main()
