"""What tests of placed trainings do in a child, which has two logical CPUs."""

import gc
import io
import itertools
import random
import sys
import time
import weakref
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

from placed_live import WORKERS, cpus, random_placement

from placement_advisor.files.contract import plain
from placement_advisor.results.analysis import Training
from placement_advisor.tf import place, placed_step
from placement_advisor.tf.load.capture import Capture
from placement_advisor.tf.load.model_source import execute
from placement_advisor.tf.trace.tracer import traced_step
from placement_advisor.tf.training import placed_run


def save_placement(path, seed):
    """Write a placement of the step that this process has traced: at random, or on the second."""
    step = traced_step()
    random_placement(step.graph, seed).save(Path(path), step.graph, WORKERS, step.traced_as())


def trained(script, plan, how):
    """Run a script to its end, as it is or with its step split by a plan; ``how`` may say more."""
    return _trained(Path(script), plan, **(how or {}))


def _trained(
    path, plan, *, trial_steps=0, slowed=None, mistake=None, is_recorded=False, is_interrupted=False
):
    """``slowed`` names the step, "own" or "placed", of which each call takes 20 ms more."""
    cpus(2)
    pressed = _press_ctrl_c() if is_interrupted else []
    made = [] if mistake is None else _make(mistake)
    told = []
    run = None
    if plan is not None:
        logs = path.parent / "logs" if is_recorded else None
        run = _Slowed(path, plan, trial_steps=trial_steps, profile=logs, say=told.append)
        run.slowed = slowed
    error = None
    with redirect_stdout(io.StringIO()) as out, nullcontext() if run is None else run.watching():
        try:
            execute(ModuleType("__main__"), path, (), None)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        finally:
            if run is not None:
                run.settle()
    bill = None if run is None else plain(Training.of(run.bill))
    ran = {"out": out.getvalue(), "told": told, "bill": bill, "error": error}
    return {**ran, "pressed": pressed, "made": made}


def captures_kept():
    """Return how many of three captures that are over are still in memory."""

    def over():
        capture = Capture(lambda _: False, lambda _: None)
        with capture.watching():
            pass
        return weakref.ref(capture)

    ended = [over() for _ in range(3)]
    gc.collect()
    return sum(capture() is not None for capture in ended)


class _Slowed(placed_run.PlacedRun):
    slowed = None

    def _within_step(self, run):
        if self.slowed == ("placed" if self._is_placed else "own"):
            time.sleep(0.02)
        return super()._within_step(run)


def _press_ctrl_c():
    """Have Ctrl-C pressed in a move of variables, once each way; return in which it was.

    Those moves are the second ones: the first ones make the split ready.
    """
    pressed = []

    def half_way(name):
        move, count = getattr(place.Runner, name), itertools.count(1)

        def moved(runner):
            if next(count) != 2:
                move(runner)
                return
            whole, runner._moving = runner._moving, dict([*runner._moving.items()][:1])
            move(runner)
            runner._moving = whole
            pressed.append(name)
            raise KeyboardInterrupt

        setattr(place.Runner, name, moved)

    half_way("take")
    half_way("give_back")
    return pressed


def _make(mistake):
    """Have a split make a mistake of `tests/campaigns/breakages.py`; return where it was made.

    Or there is "no room" behind the first move of its variables.
    """
    made = []
    if mistake == "no room":
        move = placed_run.Runner.take

        def take(runner):
            move(runner)
            raise MemoryError(mistake)

        placed_run.Runner.take = take
        return made
    sys.path.append(str(Path(__file__).parents[1] / "campaigns"))
    import breakages

    edit = {**breakages.PLACED, **breakages.SPLIT}[mistake]
    untouched = placed_step.placed_graph

    def broken(bundle, device_of, host):
        graph_def = untouched(bundle, device_of, host)
        is_split = any(node.name.startswith("replica_1/") for node in graph_def.node)
        if not is_split and not any(node.device.endswith("CPU:1") for node in graph_def.node):
            return graph_def
        for variable in sorted(bundle.variables):
            changed = type(graph_def)()
            changed.CopyFrom(graph_def)
            with suppress(LookupError):
                edit(breakages.Graph(changed), variable, random.Random(1))
                made.append(variable)
                return changed
        return graph_def

    placed_step.placed_graph = broken
    return made
