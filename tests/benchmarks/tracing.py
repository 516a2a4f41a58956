"""What the advisor adds to TensorFlow's own trace, and how much of a graph it knows.

Each model has a child of its own. Times are those of the processor (all threads), which other
work on the machine changes little. *Ours* is everything that `advisor trace` does after
TensorFlow's trace and beside TensorFlow's inlining pass, up to handing the graph to the command.

Sizes of the samples are `small` and `full`; a path to any model file works too.
"""

import tempfile
from pathlib import Path

import typer
from model_tracing import SAMPLES, Names, called
from tables import table_head, table_row

from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child, preload

traced_costs = RemoteModule("traced_costs")

# Models made for their size; none is trained, so inputs are zeros and weights stay random.
_NASNET = """
import keras
import numpy as np

model = keras.applications.NASNetLarge(weights=None)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
inputs = (np.zeros((2, 331, 331, 3), np.float32), np.zeros(2, np.int64))
"""
_UNROLLED_LSTM = """
import keras
import numpy as np

WORDS, LAYERS, UNITS, BATCH = {words}, {layers}, 32, 8

words = vectors = keras.Input((WORDS, UNITS), BATCH)
for number in range(LAYERS):
    last = number == LAYERS - 1
    vectors = keras.layers.LSTM(UNITS, return_sequences=not last, unroll=True)(vectors)
model = keras.Model(words, keras.layers.Dense(1)(vectors))
model.compile(optimizer="adam", loss="mean_squared_error")
inputs = (np.zeros((BATCH, WORDS, UNITS), np.float32), np.zeros((BATCH, 1), np.float32))
"""
_BIG_MODELS = {
    "nasnet_large": _NASNET,
    "unrolled_lstm": _UNROLLED_LSTM.format(words=60, layers=2),
    "unrolled_lstm_210k": _UNROLLED_LSTM.format(words=1_920, layers=3),
}
_SAMPLE_NAMES = ("deepconn", "resnet50", "transformer", "dlrm")
_NAMES = (*(f"{name}-{size}" for name in _SAMPLE_NAMES for size in ("small", "full")), *_BIG_MODELS)


def main(models: Names = None):
    preload()
    found = {}
    names = "trace | inline | ours | share | on top | bytes | layers | of all | flops"
    print(table_head(f"model | ops | edges | {names}"))
    with tempfile.TemporaryDirectory() as scratch:
        for model in models or _NAMES:
            found[model] = costs = _measured(model, Path(scratch))
            trace_s, inlining_s = costs["trace_cpu_s"], costs["inlining_cpu_s"]
            own_s = sum(costs["own_cpu_s"].values())
            inlining = "–" if inlining_s is None else f"{inlining_s:.2f}"
            times = f"{trace_s:.2f}", inlining, f"{own_s:.2f}", f"{own_s / trace_s:.1%}"
            shares = (f"{share:.2%}" for share in costs["shares"])
            told = f"{costs['on_top_bytes'] / 1e6:.0f} MB", *shares
            name = Path(model).stem
            print(table_row(name, costs["ops"], costs["edges"], *times, *told), flush=True)
    print("\nOurs, split up (CPU seconds)")
    for model, costs in found.items():
        parts = "  ".join(f"{part} {cpu_s:.2f}" for part, cpu_s in costs["own_cpu_s"].items())
        print(f"{Path(model).stem:<20}{parts}")


def _measured(model, scratch):
    path, size = Path(model), None
    if model in _BIG_MODELS:
        path = scratch / f"{model}.py"
        path.write_text(_BIG_MODELS[model])
    elif model in _NAMES:
        name, _, size = model.rpartition("-")
        path = SAMPLES / f"{name}.py"
    with Child(path.stem) as child:
        return called(child, traced_costs.measure, str(path), size)


if __name__ == "__main__":
    typer.run(main)
