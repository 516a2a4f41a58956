"""Long experiments that can be interrupted: seeded cases, a line of JSON each, a table at the end.

A campaign is a script of this folder, `NAME.py`, that `make campaign-NAME` runs. Its cases have
names that say all there is to know of them (model, seed, what is broken), so that a case can be
run again alone. Results stand in `campaigns/NAME.jsonl`, or in another folder that is named, under
a line that says which code and machine they are of; a run that was cut short goes on behind them.
The table goes beside them; that of a campaign that is done is kept in `docs/campaigns/`.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from placement_advisor.machine.this_machine import gpu_count

ROOT = Path(__file__).parents[2]
# A campaign is to be had in parts that fit into an hour.
MINUTES = 55.0


def drawn(cases, count, seed):
    chosen = set(random.Random(seed).sample(list(cases), min(count, len(cases))))
    return [case for case in cases if case in chosen]


def run_campaign(name, cases, examine, table):
    """Examine all cases that have no result yet, then write the table; return the results.

    ``examine`` returns what is found of a case, ``table`` makes Markdown of all results: each is
    what ``examine`` returned, with the case's name under ``case``.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="stop after that many")
    parser.add_argument("--sample", type=int, default=0, help="that many cases, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--into", type=Path, default=ROOT / "campaigns", help="folder of results")
    parser.add_argument("--anew", action="store_true", help="throw away the results that there are")
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / f"{name}.jsonl"
    if options.anew:
        path.unlink(missing_ok=True)
    head, results = _read(path)
    wanted = drawn(cases, options.sample, options.seed) if options.sample else list(cases)
    done = {result["case"] for result in results}
    left = [case for case in wanted if case not in done]
    deadline = time.monotonic() + options.minutes * 60
    with path.open("a") as file:
        for i, case in enumerate(left):
            if time.monotonic() > deadline:
                print(f"{len(left) - i} cases are left: run this again", file=sys.stderr)
                break
            print(f"{len(done) + i + 1} of {len(wanted)}: {case}", file=sys.stderr)
            result = {"case": case, **examine(case)}
            file.write(json.dumps(result) + "\n")
            file.flush()
            results.append(result)
    known = f"{len(results)} of {len(wanted)} cases, commit {head['commit']}, {head['date']}, "
    machine = f"{head['processor']}, {head['cores']} cores, TensorFlow {head['tensorflow']}"
    text = f"{table(results)}\n\n{known}{machine}: `make campaign-{name.replace('_', '-')}`\n"
    path.with_suffix(".md").write_text(text)
    print(text)
    return results


def _read(path):
    """Return what heads a file of results, and the results; begin the file where there is none."""
    # What tells whether the package and the campaigns are those of a result.
    trees = ("placement_advisor", "tests/campaigns")
    known = {name: _git("rev-parse", f"HEAD:{name}") for name in trees}
    if not path.exists():
        commit = _git("rev-parse", "--short", "HEAD")
        path.write_text(json.dumps({"commit": commit, **known, **machine_facts()}) + "\n")
    head, *results = (json.loads(line) for line in path.read_text().splitlines())
    if any(head[key] != value for key, value in known.items()):
        sys.exit(
            f"{path} has results of other code (commit {head['commit']}); "
            "take that, or begin again with --anew"
        )
    return head, results


def machine_facts():
    """Return what a reader has to know to place the figures."""
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": found.group(1).strip() if found else "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpu_count(),
        "tensorflow": version("tensorflow"),
        "keras": version("keras"),
    }


def _git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
