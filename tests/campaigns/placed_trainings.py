"""Trainings whose step is placed while they run, on random models: are they the same trainings?

Each random model that trains becomes a script of 240 steps: `fit`, or a loop over its function. Of
one in three the batch is split in two, of the others the ops stand at random on two logical CPUs.
What is written down of each:

- **Every 20th step**: from the same state, what the script's own step and the placed one add to the
  variables, compared by the rules of a verification (`measurement/verification.py`): the own step
  runs once more from rounded values, and what differs is compared from other values as well.
  `wrong` has what rounding does not explain, `steps_apart` how far changes are apart at most where
  a mistake would show.
- **At the end** (`apart`): how far variables are from those of the plain script, in proportion to
  the largest value of each. Beside it (`rounded_apart`) how far plain runs are that begin from
  values with the last digit moved, as another order of sums would: the least and the most of four.
- **Step time** (`over_by_hand`): the placed step under the hooks over the same step called by hand,
  as `place()` returns it, in blocks by turns.
- **Start** (`ready_s`, `trace_s`): what the call takes longer in which the step is captured, and
  how much of that is the trace.
- **Trial** (`goes_on`): with the script's own steps, or the placed ones, made slower by twice the
  own step, in turn from model to model (`slowed`).

Where shares of the batch draw random numbers of their own, as with dropout, and where kernels draw
them by their state (`tf.random.normal`, which a GAN has), the first two say nothing. A model that
fails has a line that says why.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from campaign import run_campaign
from program_runs import run_program
from random_models import random_model
from tables import table_head, table_row

SEEDS = (
    *(658451, 726844, 667542, 603272, 512995, 896288),
    *(341739, 149728, 909674, 881639, 108526, 867033),
)
_STEPS = 240
_LIMIT_S = 900.0
_INSIDE = Path(__file__).with_name("placed_training_parts.py")
# Ten of twelve draw or normalize. Shares of a batch are not normalized alike, and refused.
_NEEDED = ("dropout",) * 6 + ("batch_norm",) * 4 + ("training",) * 2
_SHARES = (4, 5, 10, 11)
_TAIL = f"""
import os


def _begin_rounded(given):
    seed = int(os.environ.get("ROUNDED", 0))
    kept = globals()
    if "model" in kept and not model.trainable_variables:
        model(given)
    draw = np.random.default_rng(seed)
    for each in model.trainable_variables if "model" in kept else variables:
        value = np.asarray(each)
        if seed:
            value = value * (1 + np.finfo("float32").eps * draw.choice((-1, 1), value.shape))
        each.assign(value.astype("float32"))


def _batches():
    names = globals()
    if "workload" in names:
        given = workload().inputs
    else:
        given = inputs if "inputs" in names else next(iter(dataset))
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(given)]
    draw = np.random.default_rng(1)
    for _ in range({_STEPS}):
        order = draw.permutation(len(leaves[0]))
        yield tf.nest.pack_sequence_as(given, [leaf[order] for leaf in leaves])


_begin_rounded(next(_batches())[0])
if "train_step" in globals():
    for _batch in _batches():
        train_step(*_batch)
else:
    _rows = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *_batches())
    _rows = tf.data.Dataset.from_tensor_slices(_rows).batch(BATCH_SIZE, drop_remainder=True)
    model.fit(_rows, verbose=0)
"""


def examine(case):
    seed = int(case)
    number = SEEDS.index(seed)
    needs = {"training", _NEEDED[number]}
    without = {"batch_norm"} if number in _SHARES else set()
    # What draws by the state of a kernel, as `tf.nn.dropout` does, draws anew: docs/how-to/run.md.
    without |= {"raw"} if "dropout" in needs else {"dropout"} - needs
    model = random_model(seed, needs=needs, without=without)
    half = model.batch_size // 2
    samples = [half, model.batch_size - half] if number in _SHARES else None
    line = {"split": "batch" if samples else "layers", "features": sorted(model.features)}
    asked = {"seed": seed, "samples": samples, "draws": _draws_of_its_own(line)}
    asked["slowed"] = "own" if number // 2 % 2 else "placed"
    try:
        return line | _trained(model.text, asked)
    except RuntimeError as error:
        return line | {"why_not": str(error)}


def _trained(text, asked):
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(text + _TAIL)
        asked["script"] = str(script)
        placed, plain, *rounded = (f"{folder}/{name}.npz" for name in ("placed", *range(5)))
        _inside("trace", asked)
        found = _inside("placed", asked | {"kept": placed})
        if found["why_not"] is not None:
            return found
        # As it is, then from rounded values.
        for drawn, kept in enumerate((plain, *rounded)):
            _inside("plain", asked | {"kept": kept}, ROUNDED=str(drawn))
        others = [_apart(each, plain) for each in rounded]
        found |= {"apart": _apart(placed, plain), "rounded_apart": [min(others), max(others)]}
        return found | {"slowed": asked["slowed"]} | _inside("trial", asked)


def _inside(what, asked, **environment):
    env = {"TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    words = sys.executable, str(_INSIDE), what, json.dumps(asked)
    done = run_program(*words, env=env, timeout=_LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"{what}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def _apart(ours, theirs):
    """Return how far variables are apart at most, in proportion to the largest value of each."""
    with np.load(ours) as one, np.load(theirs) as two:
        pairs = [(one[name], two[name]) for name in two.files]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) if np.any(b) else 0.0 for a, b in pairs)


def _draws_of_its_own(line):
    features = line["features"]
    return "gan" in features or (line["split"] == "batch" and "dropout" in features)


def table(results):
    names = "wrong | steps apart | apart at the end | rounded | over by hand | ready (trace)"
    lines = [table_head(f"model | split | {names} | slowed | goes on")]
    for line in results:
        cells = [line["case"], line["split"]]
        if line["why_not"] is not None:
            lines.append(table_row(*cells, line["why_not"]))
            continue
        if _draws_of_its_own(line):
            cells += ["draws of its own", "", "", ""]
        else:
            cells += ["; ".join(line["wrong"]) or "nothing", f"{line['steps_apart']:.1g}"]
            cells += [f"{line['apart']:.1g}", "{:.1g} to {:.1g}".format(*line["rounded_apart"])]
        cells += [f"{line['over_by_hand']:.3f}"]
        cells += [f"{line['ready_s']:.1f} s ({line['trace_s']:.1f} s)"]
        lines.append(table_row(*cells, line["slowed"], line["goes_on"]))
    ran = [line for line in results if line["why_not"] is None]
    right = sum(line["goes_on"] != line["slowed"] for line in ran)
    over = median(line["over_by_hand"] for line in ran) if ran else 0.0
    return "\n".join(lines) + (
        f"\n\n{len(ran)} of {len(results)} ran placed; step over the one by hand: median "
        f"{over:.3f}; trials right: {right} of {len(ran)}."
    )


if __name__ == "__main__":
    run_campaign("placed_trainings", list(map(str, SEEDS)), examine, table)
