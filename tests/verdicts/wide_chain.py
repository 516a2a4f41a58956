"""A chain of layers that do next to nothing to tensors of 16 MB.

No two layers can run at once, and handing a tensor on takes longer than computing it: wherever the
chain is cut, it must lose.
"""

import keras
import numpy as np

BATCH_SIZE = 64
NUMBERS = 65_536
LAYERS = 6
SEED = 19

model = keras.Sequential(
    [
        keras.Input((NUMBERS,), BATCH_SIZE, name="numbers"),
        *(keras.layers.Rescaling(1.01, 0.5, name=f"scaled_{layer}") for layer in range(LAYERS)),
    ],
    name="wide_chain",
)
inputs = (np.random.default_rng(SEED).normal(size=(BATCH_SIZE, NUMBERS)).astype(np.float32),)
