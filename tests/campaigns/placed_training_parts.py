"""What `placed_trainings.py` does in a process of its own, which has two logical CPUs.

python placed_training_parts.py trace|plain|placed|trial REQUEST
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType

import keras
import numpy as np
import tensorflow as tf

from placement_advisor.measurement import verification
from placement_advisor.processes.calls import is_user_code
from placement_advisor.tf.deterministic_graph import ROUNDING_SEED, rounded
from placement_advisor.tf.load.capture import Capture
from placement_advisor.tf.load.captured_step import captured
from placement_advisor.tf.load.model_source import ModelSource, execute
from placement_advisor.tf.place import as_users
from placement_advisor.tf.trace.tracer import owned_variables, trace_step
from placement_advisor.tf.training import placed_run
from placement_advisor.tf.training.trial import SplitPlan

_EVERY, _TRIAL_STEPS = 20, 20
_BLOCKS, _BLOCK_STEPS = 12, 10
_MODULE = ModuleType("__main__")  # It holds what the script has made.


def main():
    what, asked = sys.argv[1], json.loads(sys.argv[2])
    # Where the script finds nothing of ours.
    del sys.path[0]
    placed_run.cut_cpu(2)
    do = {"trace": _trace, "plain": _plain, "placed": _placed, "trial": _trial}[what]
    print(json.dumps(do(Path(asked["script"]), asked)), flush=True)
    os._exit(0)


def _trace(script, asked):
    """Write a placement of the script's step at random."""
    from placed_live import WORKERS, random_placement

    def stop(seen):
        step = trace_step(script, captured(seen, ModelSource(path=str(script))))
        placement = random_placement(step.graph, asked["seed"])
        placement.save(script.with_name("drawn.json"), step.graph, WORKERS, step.traced_as())
        print("{}", flush=True)
        os._exit(0)

    with Capture(lambda name: is_user_code(name, script), stop).watching():
        execute(ModuleType("__main__"), script, (), None)
    raise SystemExit("no step was captured")


def _plain(script, asked):
    """Run the script as it is; keep what variables hold."""
    execute(_MODULE, script, (), None)
    _keep(asked["kept"])
    return {}


def _placed(script, asked):
    """Run the script placed, with every 20th step beside the script's own."""
    found, batches, seconds = [], [], {}

    class Checked(placed_run.PlacedRun):
        def _stand_still(self):
            began_s = time.monotonic()
            super()._stand_still()
            seconds["ready"] = time.monotonic() - began_s

        def _run(self, given, own, began_s):
            placed = self._step
            batches[:] = given
            is_due = not asked["draws"] and self.bill.placed_steps % _EVERY == 0
            if not is_due or any(placed.inputs(batch) is None for batch in given):
                return super()._run(given, own, began_s)
            if self._is_placed:
                self._move(placed, is_placed=False)
            if not found:
                live = placed.split.live
                owned = owned_variables(live.function.graph, live.loaded.model)
                each = {id(variable): variable for variable, _ in owned}.values()
                self.variables = {f"{i} {one.name}": one for i, one in enumerate(each)}
            before = self.values()

            def by_placed():
                return [placed(placed.inputs(batch)) for batch in given]

            def compared(seed):
                begun = before if seed is None else rounded(before, seed)
                theirs = self.results(own, begun)
                noisy = self.results(own, rounded(begun, ROUNDING_SEED))
                self._move(placed, is_placed=True)
                ours = self.results(by_placed, begun)
                self._move(placed, is_placed=False)
                return verification.verify(ours, theirs, [verification.rounding(noisy, theirs)], 1)

            found.append(verification.from_other_values(compared))
            self.set(before)
            return super()._run(given, own, began_s)

        def values(self):
            return {name: variable.numpy() for name, variable in self.variables.items()}

        def set(self, values):
            for name, variable in self.variables.items():
                variable.assign(values[name])

        def results(self, own, before):
            self.set(before)
            self._within_step(own)
            return verification.StepResults(
                outputs=(), before=before, state=self.values(), given={}
            )

    def timed(*given):
        began_s = time.monotonic()
        traced = trace_step(*given)
        seconds["trace"] = time.monotonic() - began_s
        return traced

    placed_run.trace_step = timed
    run = _run_script(script, asked, Checked, 0)
    if run.bill.why_not is not None:
        return {"why_not": run.bill.why_not}
    _keep(asked["kept"])
    return {
        "why_not": None,
        "placed_steps": run.bill.placed_steps,
        "wrong": [each.wrong for each in found if each.wrong],
        "steps_apart": max((each.relative_difference for each in found), default=None),
        "over_by_hand": _over_by_hand(run, batches),
        "ready_s": seconds["ready"],
        "trace_s": seconds["trace"],
    }


def _trial(script, asked):
    """Run the script with a trial in which one of the two steps is made slower."""

    class Slowed(placed_run.PlacedRun):
        own_s = 0.0

        def _within_step(self, run):
            began_s = time.perf_counter()
            returned = super()._within_step(run)
            if not self._is_placed:
                self.own_s = self.own_s or time.perf_counter() - began_s
            if self._is_placed == (asked["slowed"] == "placed"):
                time.sleep(2.0 * (self.own_s or 0.01))
            return returned

    run = _run_script(script, asked, Slowed, _TRIAL_STEPS)
    trial = run.bill.trial
    assert trial is not None, run.bill
    return {"goes_on": "placed" if trial.speedup > 1 else "own", "speedup": trial.speedup}


def _run_script(script, asked, kind, trial_steps):
    drawn, samples = script.with_name("drawn.json"), asked["samples"]
    how = {"placement": None if samples else drawn, "samples": samples and tuple(samples)}
    devices = "worker:0", "worker:1"
    plan = SplitPlan(label="drawn", family="batch", devices=devices, single=drawn, **how)
    say = partial(print, file=sys.stderr)
    run = kind(script, plan, trial_steps=trial_steps, profile=None, say=say)
    with run.watching():
        execute(_MODULE, script, (), None)
        run.put_back()
    return run


def _over_by_hand(run, batches):
    """Return what a step takes under the hooks over what it takes in a loop by hand."""
    placed, live = run._step, run._step.split.live
    given = placed.inputs(batches[-1])
    placed.take()
    run._is_placed = True
    by_hand = as_users(live, placed.runner)
    arguments = [tuple(given)] if live.loaded.model is not None else given
    ways = {
        "hooked": lambda: type(run).__mro__[1]._run(run, batches[-1:], lambda: None, 0.0),
        "by hand": lambda: by_hand(*arguments),
    }
    taken = {name: [] for name in ways}
    for _ in range(1 + _BLOCKS):
        for name, call in ways.items():
            began_s = time.perf_counter()
            for _ in range(_BLOCK_STEPS):
                call()
            taken[name].append(time.perf_counter() - began_s)
    pairs = zip(taken["hooked"][1:], taken["by hand"][1:], strict=True)
    return median(hooked / hand for hooked, hand in pairs)


def _keep(path):
    """Write the numbers that the script's variables hold: its own, of its models and optimizers."""
    values = [np.asarray(each) for each in _held(list(vars(_MODULE).values()))]
    numbers = [value for value in values if value.dtype.kind == "f"]
    assert numbers, "the script has no variables"
    np.savez(path, **{f"after_{i}": value for i, value in enumerate(numbers)})


def _held(made):
    kind = keras.optimizers.Optimizer
    if isinstance(made, (list, tuple)):
        return [variable for each in made for variable in _held(each)]
    if isinstance(made, keras.Model):
        return [*made.variables, *_held([v for v in vars(made).values() if isinstance(v, kind)])]
    if isinstance(made, kind):
        return list(made.variables)
    return [made] if isinstance(made, tf.Variable) else []


if __name__ == "__main__":
    main()
