"""Scripts with a split of their own: what `advisor analyze` says of it, and a second measurement.

    PYTHONPATH=tests python tests/benchmarks/own_splits.py FILE --first-seed SEED [--count 8]
    PYTHONPATH=tests python tests/benchmarks/own_splits.py FILE --summary

The scripts are those of `tests/split_scripts.py`. For each, the command analyzes it on workers, as
a user would call it. Of its `analysis.json` this is taken: the ratio of `as-written` to `single` as
measured, with its 95 % interval, and as predicted. The split *wins* if the interval lies below the
ratio that is worth a split (0.97), *loses* if it lies above, and else the command *cannot tell*.

The second measurement shares nothing with the first but the machine, and what links were calibrated
to: in another process the script runs up to its step again, is traced and placed again, and on new
workers the split and `single` take turns, without any other candidate. Turns are longer, half a
second instead of five steps, so that they are nearer to training. Its interval is made by the same
rule. A verdict is *contradicted* if both are firm and differ. Whether the median of the second
measurement lies in the interval of the first is told as well, and contradicts nothing.

A line of JSON for each script, as soon as it is known; a run that was cut short goes on. A script
that failed has a line that says why, and counts as not firm.

Left out: that two measurements may be wrong alike, as by what the workers stand in for.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from command_runs import LAUNCH
from machine_facts import machine_facts
from model_tracing import on_workers
from result_lines import add, lines_of
from split_scripts import split_script

from placement_advisor import defaults
from placement_advisor.candidates import references
from placement_advisor.candidates.references import as_written
from placement_advisor.cost.links import calibrated_cluster
from placement_advisor.defaults import WORTHWHILE_RATIO
from placement_advisor.errors import AdvisorError
from placement_advisor.measurement.measurement import compare
from placement_advisor.processes.children import preload
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress, time_in_rounds
from placement_advisor.testbed.cost_measurement import calibration_of
from placement_advisor.units import NS_PER_S

WINS, LOSES, CANNOT_TELL = "wins", "loses", "cannot tell"
_TURN_S, _ROUNDS = 0.5, 30
_MOST_STEPS = 400
_LIMIT_S = 1_800.0
_TAIL_CHARS = 600


def verdict(interval):
    """Return what an interval of the ratio to one device says."""
    low, high = interval
    if high < WORTHWHILE_RATIO:
        return WINS
    return LOSES if low > WORTHWHILE_RATIO else CANNOT_TELL


def examine(seed):
    """Return what was said of a script's split, and what came of it once more."""
    script = split_script(seed)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"split_{seed}.py"
        path.write_text(script.text)
        line = {"seed": seed, **script.features, **_said(path, Path(folder) / "out")}
        if "said" in line:
            line |= _once_more(path)
    if "again" in line:
        low, high = line["interval"]
        firm = {line["said"], line["again"]} - {CANNOT_TELL}
        line["contradicted"] = len(firm) > 1
        line["is_within"] = low <= line["ratio_again"] <= high
    return line | {"took_s": round(time.monotonic() - began_s)}


def _said(path, out):
    """Analyze a script with the command, and return what it says of the split."""
    words = ["analyze", path.name, "--testbed", "workers", "-o", str(out)]
    ran = _ran([sys.executable, "-c", LAUNCH, *words], path.parent)
    if isinstance(ran, str):
        return {"why": ran}
    analysis = json.loads((out / "analysis.json").read_text())
    found = {each["name"]: each for each in analysis["candidates"]}.get(defaults.AS_WRITTEN)
    if found is None:
        return {"why": f"{defaults.AS_WRITTEN} is no candidate"}
    measured, predicted = found["measured"], found["predicted"]
    if found["failure"] is not None or measured is None or measured["ratio_to_single"] is None:
        return {"why": (found["failure"] or {}).get("message", "the split was not timed")}
    interval = measured["ratio_to_single"]["ci95"]
    return {
        "ratio": measured["ratio_to_single"]["median"],
        "interval": interval,
        "predicted": predicted and predicted["ratio_to_single"],
        "said": verdict(interval),
    }


def _once_more(path):
    """Measure in another process; return that interval, too."""
    ran = _ran([sys.executable, __file__, "--again", path.name], path.parent)
    if isinstance(ran, str):
        return {"why": ran}
    found = json.loads(ran.stdout.splitlines()[-1])
    if "interval_again" in found:
        found["again"] = verdict(found["interval_again"])
    return found


def _ran(words, folder):
    """Run a program in a folder; return what came of it, or why nothing did."""
    try:
        ran = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_LIMIT_S:g} s"
    return ran.stderr[-_TAIL_CHARS:] if ran.returncode else ran


def measured_again(path):
    """Run a script up to its step, and time its split and one device in long turns."""
    preload()
    with on_workers(path, "train") as running:
        if running is None:
            return {"why": "it does not train"}
        traced, testbed = running
        devices = testbed.plan.devices
        cluster = calibrated_cluster(devices, calibration_of(testbed, SilentProgress()))
        own = as_written(traced.graph, traced.requested_device_of, cluster)
        if own is None:
            return {"why": f"{defaults.AS_WRITTEN} is no placement"}
        trial = Benchmark(testbed, steps=defaults.STEPS, watcher=SilentProgress())
        single = references.on_device(traced.graph, devices[0].name)
        entries = {each.label: trial.enter(each) for each in (single, own)}
        for entry in entries.values():
            if entry.failure:
                return {"why": entry.failure.message}
        step_s = min(entry.warmup_ns[-1] for entry in entries.values()) / NS_PER_S
        steps = max(defaults.STEPS, min(round(_TURN_S / step_s), _MOST_STEPS))
        longer = Benchmark(testbed, steps=steps, watcher=SilentProgress())
        longer.entries |= {name: replace(each, rounds=[]) for name, each in entries.items()}
        time_in_rounds(longer, _ROUNDS, lambda _: None)
        alone, split = (longer.entries[name].rounds for name in (defaults.BASELINE, own.label))
    found = compare(defaults.BASELINE, alone, split, among=1)
    if found is None:
        return {"why": "there are too few rounds"}
    return {
        "ratio_again": found.ratio.median,
        "interval_again": [found.ratio.low, found.ratio.high],
        "rounds_again": found.rounds,
        "steps_again": steps,
    }


def summary(lines):
    """Return a table in Markdown, and what it comes to."""
    rows = [
        "| seed | script | towers | backward | predicted | measured | said | once more | then "
        "| contradicted | within |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    examined = [line for line in lines if "seed" in line]
    for line in examined:
        of = "heavy" if line["heavy"] else "light"
        row = f"{line['seed']} | {line['style']}, batch {line['batch']} "
        row += f"| {of} {' + '.join(line['towers'])}, tops {line['tops'][0]} "
        row += f"| {'with its tower' if line['backward_apart'] else 'on one device'}"
        if "said" in line:
            predicted = line["predicted"]
            row += f" | {predicted['ratio']:.2f}" if predicted else " | –"
            row += f" | {_interval(line['ratio'], line['interval'])} | {line['said']}"
        if "again" in line:
            row += f" | {_interval(line['ratio_again'], line['interval_again'])} | {line['again']}"
            row += f" | {'**yes**' if line['contradicted'] else 'no'}"
            row += f" | {'yes' if line['is_within'] else 'no'}"
        else:
            row += f" | failed: {' '.join(line['why'].split())}"
        rows.append(f"| {row} |")
    said = [line.get("said") for line in examined]
    both = [line for line in examined if "again" in line]
    return "\n".join(rows) + (
        "\n\nRatios to one device, below 1 is faster; in brackets 95 % intervals.\n\n"
        f"{len(examined)} scripts: {said.count(WINS) + said.count(LOSES)} firm, "
        f"{said.count(WINS)} win, {said.count(LOSES)} lose; "
        f"{sum(line['contradicted'] for line in both)} of {len(both)} contradicted, "
        f"{sum(line['is_within'] for line in both)} measured again within the first interval."
    )


def _interval(ratio, interval):
    return f"{ratio:.2f} ({interval[0]:.2f}–{interval[1]:.2f})"


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="results, a line of JSON for each script")
    parser.add_argument("--first-seed", type=int, help="seeds are in a row from here")
    parser.add_argument("--count", type=int, default=8, help="of scripts (8)")
    parser.add_argument("--summary", action="store_true", help="say what the file comes to")
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.again:  # FILE is a script, in a process of its own.
        try:
            print(json.dumps(measured_again(asked.file)))
        except AdvisorError as error:
            print(json.dumps({"why": error.message}))
        return
    if not asked.summary:
        if asked.first_seed is None:
            parser.error("name a --first-seed that no change was tried on")
        known = lines_of(asked.file)
        if not known:
            add(asked.file, machine_facts())
        done = {line.get("seed") for line in known}
        for seed in range(asked.first_seed, asked.first_seed + asked.count):
            if seed not in done:
                add(asked.file, examine(seed))
    print(summary(lines_of(asked.file)))


if __name__ == "__main__":
    main()
