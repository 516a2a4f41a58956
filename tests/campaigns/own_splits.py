"""Scripts with a split of their own: what `advisor analyze` says of it, and a second measurement.

The scripts are those of `tests/split_scripts.py`. For each, the command analyzes it on workers, as
a user would call it. The split *wins* if the 95 % interval of the measured ratio of `as-written` to
`single` lies below 0.97, *loses* if it lies above, and else the command *cannot tell*.

The second measurement shares nothing with the first but the machine, and what links were calibrated
to: in another process the script runs up to its step again, is traced and placed again, and on new
workers the split and `single` take turns, without any other candidate. Turns are longer, half a
second instead of five steps, so that they are nearer to training. Its interval is made by the same
rule. A verdict is *contradicted* if both are firm and differ. Whether the median of the second
measurement lies in the interval of the first is told as well, and contradicts nothing. A script
that failed counts as not firm.

Left out: that two measurements may be wrong alike, as by what the workers stand in for.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from campaign import run_campaign
from command_runs import LAUNCH
from model_tracing import on_workers
from program_runs import run_program
from split_scripts import split_script
from tables import table_head, table_row

from placement_advisor import defaults
from placement_advisor.candidates import references
from placement_advisor.cost.links import calibrated_cluster
from placement_advisor.errors import AdvisorError
from placement_advisor.measurement.measurement import compare
from placement_advisor.processes.children import preload
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress, time_in_rounds
from placement_advisor.testbed.cost_measurement import calibration_of
from placement_advisor.units import NS_PER_S

# No change was tried on these.
SEEDS = range(40481, 40489)
WINS, LOSES, CANNOT_TELL = "wins", "loses", "cannot tell"
_TURN_S, _ROUNDS = 0.5, 30
_MOST_STEPS = 400
_LIMIT_S = 1_800.0


def verdict(interval):
    """Return what an interval of the ratio to one device says."""
    low, high = interval
    if high < defaults.WORTHWHILE_RATIO:
        return WINS
    return LOSES if low > defaults.WORTHWHILE_RATIO else CANNOT_TELL


def examine(case):
    script = split_script(int(case))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"split_{case}.py"
        path.write_text(script.text)
        found = {**script.features, **_said(path, Path(folder) / "out")}
        if "said" in found:
            found |= _once_more(path)
    if "again" in found:
        low, high = found["interval"]
        found["contradicted"] = len({found["said"], found["again"]} - {CANNOT_TELL}) > 1
        found["is_within"] = low <= found["ratio_again"] <= high
    return found


def _said(path, out):
    """Analyze a script with the command, and return what it says of the split."""
    words = ("analyze", path.name, "--testbed", "workers", "-o", str(out))
    ran = _ran(path.parent, "-c", LAUNCH, *words)
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
    ran = _ran(path.parent, __file__, path.name, PYTHONPATH=os.pathsep.join(sys.path))
    if isinstance(ran, str):
        return {"why": ran}
    found = json.loads(ran.stdout.splitlines()[-1])
    if "interval_again" in found:
        found["again"] = verdict(found["interval_again"])
    return found


def _ran(folder, *words, **environment):
    """Run Python in a folder; return what came of it, or why nothing did."""
    words = (sys.executable, *words)
    try:
        ran = run_program(*words, env=environment, cwd=folder, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it took more than {_LIMIT_S:g} s"
    return ran.stderr[-600:] if ran.returncode else ran


def measured_again(path):
    """Run a script up to its step, and time its split and one device in long turns."""
    preload()
    with on_workers(path, "train") as running:
        if running is None:
            return {"why": "it does not train"}
        traced, testbed = running
        devices = testbed.plan.devices
        cluster = calibrated_cluster(devices, calibration_of(testbed, SilentProgress()))
        own = references.as_written(traced.graph, traced.requested_device_of, cluster)
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


def table(results):
    names = "predicted | measured | said | once more | then | contradicted | within"
    lines = [table_head(f"seed | script | {names}")]
    for found in results:
        weight = "heavy" if found["heavy"] else "light"
        backward = "apart" if found["backward_apart"] else "together"
        script = f"{weight} {' + '.join(found['towers'])}, backward {backward}"
        cells = [found["case"], f"{found['style']}, {script}"]
        if "said" in found:
            predicted = found["predicted"]
            cells.append(f"{predicted['ratio']:.2f}" if predicted else "–")
            cells += [_interval(found["ratio"], found["interval"]), found["said"]]
        if "again" in found:
            cells += [_interval(found["ratio_again"], found["interval_again"]), found["again"]]
            cells += ["yes" if found[key] else "no" for key in ("contradicted", "is_within")]
        else:
            cells.append(f"failed: {' '.join(found['why'].split())}")
        lines.append(table_row(*cells))
    said = [found.get("said") for found in results]
    both = [found for found in results if "again" in found]
    return "\n".join(lines) + (
        "\n\nRatios to one device, below 1 is faster; in brackets 95 % intervals.\n\n"
        f"{len(results)} scripts: {said.count(WINS) + said.count(LOSES)} firm, "
        f"{said.count(WINS)} win, {said.count(LOSES)} lose; "
        f"{sum(found['contradicted'] for found in both)} of {len(both)} contradicted, "
        f"{sum(found['is_within'] for found in both)} measured again within the first interval."
    )


def _interval(ratio, interval):
    return f"{ratio:.2f} ({interval[0]:.2f}–{interval[1]:.2f})"


def main():
    """Run the campaign; in a process of its own, measure the script that is named once more."""
    if len(sys.argv) == 1 or sys.argv[1].startswith("--"):
        run_campaign("own_splits", list(map(str, SEEDS)), examine, table)
        return
    try:
        print(json.dumps(measured_again(Path(sys.argv[1]))))
    except AdvisorError as error:
        print(json.dumps({"why": error.message}))


if __name__ == "__main__":
    main()
