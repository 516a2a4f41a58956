"""Two layers that do next to nothing to tensors of 16 MB.

They cannot run at once, and handing a tensor on takes longer than computing it: cut in two, the
chain must lose. With half of the batch each, half of the result is handed back, which takes longer
than all there is to compute. (It took as long where there were six layers: that answer was one of a
few percent.)
"""

import keras
import numpy as np

BATCH_SIZE = 64
NUMBERS = 65_536
LAYERS = 2
SEED = 19

model = keras.Sequential(
    [
        keras.Input((NUMBERS,), BATCH_SIZE, name="numbers"),
        *(keras.layers.Rescaling(1.01, 0.5, name=f"scaled_{layer}") for layer in range(LAYERS)),
    ],
    name="wide_chain",
)
inputs = (np.random.default_rng(SEED).normal(size=(BATCH_SIZE, NUMBERS)).astype(np.float32),)
