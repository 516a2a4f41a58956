"""The code of a network as Keras layers."""

from random_model_parts.lines import indented, one_or

LOSSES = {
    "score": "keras.losses.MeanSquaredError()",
    "label": "keras.losses.SparseCategoricalCrossentropy(from_logits=True)",
    "chance": "keras.losses.BinaryCrossentropy(from_logits=True)",
}
OPTIMIZERS = {
    "sgd": "SGD(LEARNING_RATE",
    "momentum": "SGD(LEARNING_RATE, momentum=0.9",
    "adam": "Adam(LEARNING_RATE",
    "adamw": "AdamW(LEARNING_RATE",
    "rmsprop": "RMSprop(LEARNING_RATE",
    "adagrad": "Adagrad(LEARNING_RATE",
}


def optimizer_code(optimizer, *, clipped):
    """Return code that makes an optimizer."""
    return f"keras.optimizers.{OPTIMIZERS[optimizer]}{', global_clipnorm=1.0' if clipped else ''})"


def functional(net, *, named, open_batch, maker="make_model"):
    """Return a function that makes a functional model."""
    body = [_input(part, open_batch=open_batch) for part in net.inputs]
    body += [f"{p.name} = {_layer(p, named=named)}({_read(p)})" for p in net.parts if p.reads]
    inputs, heads = [part.name for part in net.inputs], [part.name for part in net.heads]
    body.append(f"return keras.Model({one_or('[]', inputs)}, {one_or('[]', heads)})")
    return [f"def {maker}():", *indented(body)]


def subclassed(net, *, named):
    """Return a class whose `call` computes the network."""
    layers = [part for part in net.parts if part.reads]
    made = [f"self.{part.name} = {_layer(part, named=named)}" for part in layers]
    call = [f"{', '.join(part.name for part in net.inputs)} = inputs"]
    call += [f"{part.name} = self.{part.name}({_read(part)})" for part in layers]
    call.append(f"return {one_or('()', [part.name for part in net.heads])}")
    return [
        "class DrawnModel(keras.Model):",
        *indented(["def __init__(self):", *indented(["super().__init__()", *made])]),
        "",
        *indented(["def call(self, inputs):", *indented(call)]),
    ]


def _input(part, *, open_batch):
    size = "" if open_batch else ", BATCH_SIZE"
    kind = ', dtype="int32"' if part.kind == "ids" else ""
    return f'{part.name} = keras.Input({part.shape}{size}{kind}, name="{part.name}")'


def _layer(part, *, named):
    """Return code that makes a layer."""
    units = part.shape[-1]
    activation = f'activation="{part.activation}"'
    kind, words = {
        "dense": ("Dense", [str(units), activation] if part.activation else [str(units)]),
        "head": ("Dense", [str(units)]),
        "conv": ("Conv2D", [str(units), "3", 'padding="same"', activation]),
        "pool": ("MaxPooling2D", ["2"]),
        "flatten": ("Flatten", []),
        "embedding": ("Embedding", [str(part.rows), str(units)]),
        "average": ("GlobalAveragePooling1D", []),
        "recurrent": (part.cell, [str(units), *(["unroll=True"] if part.unrolled else [])]),
        "batch_norm": ("BatchNormalization", []),
        "dropout": ("Dropout", [str(part.rate)]),
        "concat": ("Concatenate", []),
        "add": ("Add", []),
        "multiply": ("Multiply", []),
    }[part.kind]
    name = [f'name="{part.name}"'] if named else []
    return f"keras.layers.{kind}({', '.join([*words, *name])})"


def _read(part):
    return one_or("[]", [read.name for read in part.reads])
