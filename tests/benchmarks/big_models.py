"""Models that are made for their size: files are written for the advisor to read.

None is trained to any end, so inputs are zeros and weights stay random.
"""

NASNET = "nasnet_large"
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
_FILES = {
    NASNET: _NASNET,
    "unrolled_lstm": _UNROLLED_LSTM.format(words=60, layers=2),
    "unrolled_lstm_210k": _UNROLLED_LSTM.format(words=1_920, layers=3),
}
BIG_MODELS = tuple(_FILES)


def write_big_model(name, folder):
    """Write the file of a model and return it."""
    path = folder / f"{name}.py"
    path.write_text(_FILES[name])
    return path
