"""What tests of models drawn at random do in a child: place and split them where they live."""

import runpy
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import keras
from placed_live import WORKERS, cpus, own_step
from random_models import random_model
from traced_models import at_random

import placement_advisor
from placement_advisor.errors import BatchSplitError
from placement_advisor.measurement.verification import StepResults, rounding, verify
from placement_advisor.tf.deterministic_graph import rounded
from placement_advisor.tf.place import live_step
from placement_advisor.tf.split_step import split_step
from placement_advisor.tf.trace.tracer import VariableLog

# So many steps from the same state, on batches of their own where the file has several.
STEPS = 3
MAX_MS = 20.0


class Made(NamedTuple):
    """What a model file makes: what is placed, the batches it is called with, its variables."""

    step: Any
    batches: list[tuple[Any, ...]]
    variables: list[Any]

    def results(self, step):
        """Run steps, one of the file's own or one of ours in its place."""
        before = self._values()
        for batch in self.batches:
            if isinstance(self.step, keras.Model):
                step(batch[0] if len(batch) == 1 else batch)
            else:
                step(*batch)
        return StepResults(outputs=(), before=before, state=self._values(), given={})

    def _values(self):
        return {str(number): variable.numpy() for number, variable in enumerate(self.variables)}


def through_all(seed, folder):
    """Place the model of a seed by a file that was written for another build of it, and split it.

    ``place`` and ``make_parallel`` have what is wrong with variables; ``refused`` has the reason
    where the batch cannot be split, ``own`` the ops that compute something of a replica's own.
    """
    cpus(2)
    path = Path(folder) / "model.py"
    path.write_text(random_model(seed, max_ms=MAX_MS).text, encoding="utf-8")
    first, alone, noisy, placed, parallel = (_made(path) for _ in range(5))
    traced = live_step(first.step, first.batches[0])
    for variable in noisy.variables:
        variable.assign(rounded({"": variable.numpy()}, seed)[""])
    theirs = alone.results(own_step(alone))
    noise = rounding(noisy.results(own_step(noisy)), theirs)

    def wrong(made, step):
        return verify(made.results(step), theirs, [noise], STEPS).wrong

    file = Path(folder) / "placement.json"
    at_random(traced.graph, WORKERS, seed).save(file, traced.graph, WORKERS)
    step = placement_advisor.place(placed.step, file, *placed.batches[0])
    found = {"place": wrong(placed, step)}
    try:
        size = traced.loaded.batch_size or 0
        found["own"] = split_step(traced, (size // 2, size - size // 2)).own
        step = placement_advisor.make_parallel(
            parallel.step, ["CPU:0", "CPU:1"], inputs=parallel.batches[0]
        )
    except BatchSplitError as error:
        return found | {"refused": error.message}
    return found | {"make_parallel": wrong(parallel, step)}


def _made(path):
    """Run a model file; it counts from the same seeds each time."""
    log = VariableLog()
    with log.recording():
        names = runpy.run_path(str(path))
    step = names.get("train_step") or names.get("step") or names["model"]
    if "dataset" in names:
        batches = [batch if isinstance(batch, tuple) else (batch,) for batch in names["dataset"]]
    elif "workload" in names:
        batches = [tuple(names["workload"]().inputs)]
    else:
        batches = [tuple(names["inputs"])]
    steps = list(islice(batches * STEPS, STEPS))
    variables = {id(v): v for v in log.variables() if v is not None}
    if isinstance(step, keras.Model):
        # A GAN calls nothing but its parts.
        if not step.built and type(step).call is not keras.Model.call:
            step(steps[0][0])
        variables |= {id(v.value): v.value for v in step.variables}
    return Made(step, steps, [v for v in variables.values() if v.dtype.is_floating])
