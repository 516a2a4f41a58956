"""Training scripts with a split of their own, drawn at random.

A script is what somebody with two GPUs could have written: two towers of dense, convolutional or
embedding layers, one under `tf.device("/GPU:0")`, the other under `tf.device("/GPU:1")`, and a head
under one of them or under none. It is a loop around a `tf.function`, a subclassed Keras model in
`fit`, or a session of TF1. All scopes take effect. Equal seeds give equal text.

Nothing is drawn by looking at how a split does. What decides that is drawn apart: of two seeds in a
row one has heavy towers and the other light ones, of three each has another style, and some leave
the backward pass of both towers on one device, have unequal towers, or send much to the head.

Left out: functional models, whose scopes Keras 3 drops; strategies; more than two devices.
"""

import random
from bisect import bisect_right
from dataclasses import dataclass, replace

from random_model_parts.lines import indented

STYLES = ("function", "fit", "session")
KINDS = ("dense", "conv", "embedding")
DEVICES = ("/GPU:0", "/GPU:1")
SIDES = ("left", "right")
# What a tower takes in a training step on one core. It is roughly so: a light one takes longer, as
# each of its ops has to be started.
_HEAVY_MS, _LIGHT_MS = (12.0, 35.0), (0.1, 1.0)
_FLOP_PER_MS = {"dense": 90e6, "conv": 45e6, "embedding": 90e6}
# Forward pass, gradients of the inputs, gradients of the weights; an addition for each product.
_FLOP_PER_WEIGHT = 6
# Weights, their gradients and slots come from memory; wide layers at a small batch wait for them.
_MS_PER_WEIGHT = {"SGD": 6e-6, "Adam": 12e-6}
# Odds of what makes a split worse: of three heavy ones about two are left as they are.
_ON_ONE_DEVICE, _UNEQUAL, _SENDS_MUCH = 0.15, 0.25, 0.2
_VOCABULARY = (500, 1_000, 2_000)
_NARROWEST, _WIDEST = 4, 4_000
_OPTIMIZERS = {"SGD": "GradientDescentOptimizer", "Adam": "AdamOptimizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """Layers of one width; ``top`` is the size of what the head gets of a sample.

    ``size`` is that of the input: numbers, the side of a picture, or words.
    """

    kind: str
    size: int
    width: int
    depth: int
    top: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitScript:
    """What was drawn.

    ``head`` is the device of the head, None for none. Unless ``is_apart``, the backward pass of
    both towers has no device.
    """

    seed: int
    style: str
    is_heavy: bool
    is_apart: bool
    left: Tower
    right: Tower
    batch: int
    head: str | None
    optimizer: str

    @property
    def text(self):
        """The script."""
        text_of = {"function": _function_text, "fit": _fit_text, "session": _session_text}
        return text_of[self.style](self)

    @property
    def features(self):
        """What tells it from others, in short."""
        return {
            "style": self.style,
            "towers": [self.left.kind, self.right.kind],
            "heavy": self.is_heavy,
            "backward_apart": self.is_apart,
            "batch": self.batch,
            "tops": [self.left.top, self.right.top],
        }


def split_script(seed):
    """Return the script of a seed."""
    draw = random.Random(f"split script {seed}")
    is_heavy = seed % 2 == 0
    batch = 2 ** (draw.randint(6, 8) if is_heavy else draw.randint(4, 8))
    least, most = _HEAVY_MS if is_heavy else _LIGHT_MS
    took_ms = least * (most / least) ** draw.random()
    other_ms = took_ms * draw.uniform(0.2, 0.5) if draw.random() < _UNEQUAL else took_ms
    top = draw.choice((512, 1_024) if draw.random() < _SENDS_MUCH else (4, 8, 16, 32))
    kinds = [draw.choice(KINDS)] * 2 if draw.random() < 0.5 else draw.choices(KINDS, k=2)
    optimizer = draw.choice(list(_OPTIMIZERS))
    towers = [
        _tower(draw, kind, batch, optimizer, each, top)
        for kind, each in zip(kinds, draw.sample((took_ms, other_ms), 2), strict=True)
    ]
    return SplitScript(
        seed=seed,
        style=STYLES[seed % len(STYLES)],
        is_heavy=is_heavy,
        is_apart=draw.random() >= _ON_ONE_DEVICE,
        left=towers[0],
        right=towers[1],
        batch=batch,
        head=draw.choice((*DEVICES, None)),
        optimizer=optimizer,
    )


def _tower(draw, kind, batch, optimizer, took_ms, top):
    """Return the widest tower that takes so long a training step, at most."""
    drawn = Tower(
        kind=kind,
        size=draw.choice({"dense": (64, 128), "conv": (6, 8), "embedding": (10, 30)}[kind]),
        width=_NARROWEST,
        depth=draw.randint(2, 4),
        top=top,
        vocabulary=draw.choice(_VOCABULARY),
    )
    widths = range(_NARROWEST, _WIDEST)

    def estimate_ms(width):
        return estimated_ms(replace(drawn, width=width), batch, optimizer)

    return replace(drawn, width=widths[max(0, bisect_right(widths, took_ms, key=estimate_ms) - 1)])


def estimated_ms(tower, batch, optimizer):
    """Return what a training step of a tower takes on one core, roughly."""
    width, is_conv = tower.width, tower.kind == "conv"
    first = {"conv": 3, "dense": tower.size, "embedding": width}[tower.kind]
    inner = (first + (tower.depth - 1) * width) * width * (9 if is_conv else 1)
    last = width * tower.top
    # A kernel is used at each place of a picture.
    uses = tower.size**2 if is_conv else 1
    flop = _FLOP_PER_WEIGHT * batch * (inner * uses + last)
    table = tower.vocabulary * width if tower.kind == "embedding" else 0
    weights = inner + last + table
    return flop / _FLOP_PER_MS[tower.kind] + weights * _MS_PER_WEIGHT[optimizer]


def _under(device, lines):
    """Return lines within a scope, as they are for no device."""
    return list(lines) if device is None else [f'with tf.device("{device}"):', *indented(lines)]


def _scoped(lines):
    """Return a line for each tower within the scope of its device."""
    under = (_under(device, [line]) for device, line in zip(DEVICES, lines, strict=True))
    return [line for part in under for line in part]


def _data_lines(script):
    """Return lines that make up samples, four batches of them."""
    lines = [f"BATCH = {script.batch}", "SAMPLES = 4 * BATCH", "numbers = np.random.default_rng(7)"]
    for side, tower in zip(SIDES, (script.left, script.right), strict=True):
        made, dtype = f"normal(size=(SAMPLES, {', '.join(map(str, _sample(tower)))}))", "float32"
        if tower.kind == "embedding":
            made, dtype = f"integers(0, {tower.vocabulary}, (SAMPLES, {tower.size}))", "int32"
        lines.append(f'{side}_data = numbers.{made}.astype("{dtype}")')
    return [*lines, 'wanted_data = numbers.normal(size=(SAMPLES, 1)).astype("float32")', ""]


def _sample(tower):
    return (tower.size, tower.size, 3) if tower.kind == "conv" else (tower.size,)


# Keras layers, for `tf.function` and `fit`.
_BUILT = '''
def built(layers, shape):
    """Create the variables of layers, where this is called."""
    for layer in layers:
        layer.build(shape)
        shape = layer.compute_output_shape(shape)
    return layers


def through(layers, x):
    for layer in layers:
        x = layer(x)
    return x


'''


def _layers(tower):
    """Return the layers of a tower as an expression, and their input's shape."""
    if tower.kind == "conv":
        layer = f'tf.keras.layers.Conv2D({tower.width}, 3, padding="same", activation="relu")'
        inner = [layer] * tower.depth + ["tf.keras.layers.GlobalAveragePooling2D()"]
    else:
        inner = [f'tf.keras.layers.Dense({tower.width}, activation="relu")'] * tower.depth
    if tower.kind == "embedding":
        table = f"tf.keras.layers.Embedding({tower.vocabulary}, {tower.width})"
        inner = [table, "tf.keras.layers.GlobalAveragePooling1D()", *inner]
    lines = [f"{line}," for line in [*inner, f"tf.keras.layers.Dense({tower.top})"]]
    shape = f"(BATCH, {', '.join(map(str, _sample(tower)))})"
    return ["built(", "    [", *indented(lines, 2), "    ],", f"    {shape},", ")"]


def _built_towers(script, prefix=""):
    lines = []
    for side, tower, device in zip(SIDES, (script.left, script.right), DEVICES, strict=True):
        first, *rest = _layers(tower)
        lines += _under(device, [f"{prefix}{side}_tower = {first}", *rest])
    width = script.left.top + script.right.top
    head = f"{prefix}head = built([tf.keras.layers.Dense(1)], (BATCH, {width}))"
    return [*lines, *_under(script.head, [head])]


_LOSS = "loss = tf.reduce_mean(tf.square({through} - wanted))"
_HEAD = "through({of}head, tf.concat([left, right], 1))"


def _weights(of=""):
    return [
        f"{of}{name}_weights = [w for layer in {of}{layers} for w in layer.trainable_variables]"
        for name, layers in (("left", "left_tower"), ("right", "right_tower"), ("head", "head"))
    ]


def _text(how, script, *parts):
    """Return what begins with imports and data; a part is text or lines."""
    tensorflow = "import tensorflow as tf\n"
    if script.style == "session":
        tensorflow = "import tensorflow.compat.v1 as tf\n\ntf.disable_v2_behavior()\n"
    head = f'"""Two towers, each on a GPU of its own, {how}."""\n\nimport numpy as np\n'
    data = "\n".join(_data_lines(script))
    rest = (part if isinstance(part, str) else "\n".join(part) + "\n" for part in parts)
    return f"{head}{tensorflow}\n{data}\n{''.join(rest)}"


def _function_text(script):
    loss = _LOSS.format(through=_HEAD.format(of=""))
    return _text(
        "in a loop of one's own",
        script,
        _BUILT,
        _built_towers(script),
        _weights(),
        f"""weights = left_weights + right_weights + head_weights
optimizer = tf.keras.optimizers.{script.optimizer}(0.001)
optimizer.build(weights)


@tf.function
def train_step(left_batch, right_batch, wanted):
""",
        indented(_step_lines(script, loss, "")),
        """    optimizer.apply_gradients(zip(gradients, weights))
    return loss


batches = tf.data.Dataset.from_tensor_slices((left_data, right_data, wanted_data))
for epoch in range(1000):
    for batch in batches.batch(BATCH, drop_remainder=True):
        loss = train_step(*batch)
    print(f"epoch {epoch}: {float(loss):.3f}")
""",
    )


def _step_lines(script, loss, of):
    """Return lines that compute a loss and all gradients, each tower where it stands or not."""
    forward = [f"{side} = through({of}{side}_tower, {side}_batch)" for side in SIDES]
    if not script.is_apart:
        inner = [*_scoped(forward), *_under(script.head, [loss])]
        gradients = f"gradients = tape.gradient(loss, {of}weights)"
        return ["with tf.GradientTape() as tape:", *indented(inner), gradients]
    lines = []
    for side, device, line in zip(SIDES, DEVICES, forward, strict=True):
        lines += [f'with tf.device("{device}"), tf.GradientTape() as {side}_tape:', f"    {line}"]
    head = [
        "with tf.GradientTape() as tape:",
        "    tape.watch([left, right])",
        f"    {loss}",
        f"to_left, to_right, own = tape.gradient(loss, [left, right, {of}head_weights])",
    ]
    lines += _under(script.head, head)
    for side, device in zip(SIDES, DEVICES, strict=True):
        took = f"{side}_tape.gradient({side}, {of}{side}_weights, to_{side})"
        lines += _under(device, [f"{side}_gradients = {took}"])
    return [*lines, "gradients = left_gradients + right_gradients + own"]


def _fit_text(script):
    head = _HEAD.format(of="self.")
    forward = _scoped([f"{side} = through(self.{side}_tower, {side}_batch)" for side in SIDES])
    own_step = []
    if script.is_apart:  # The whole of Keras' step takes its gradients outside of `call`.
        own_step = [
            "",
            "    def train_step(self, data):",
            "        (left_batch, right_batch), wanted = data",
            *indented(_step_lines(script, _LOSS.format(through=head), "self."), 2),
            "        weights = self.left_weights + self.right_weights + self.head_weights",
            "        self.optimizer.apply_gradients(zip(gradients, weights))",
            '        return {"error": loss}',
        ]
    return _text(
        "as a Keras model",
        script,
        _BUILT,
        """class TwoTowers(tf.keras.Model):
    def __init__(self):
        super().__init__()
""",
        indented(
            [*_built_towers(script, "self."), *(_weights("self.") if script.is_apart else [])], 2
        ),
        """
    def call(self, batches):
        left_batch, right_batch = batches
""",
        [*indented([*forward, *_under(script.head, [f"return {head}"])], 2), *own_step],
        f"""

model = TwoTowers()
model.compile(tf.keras.optimizers.{script.optimizer}(0.001), "mean_squared_error")
model.fit((left_data, right_data), wanted_data, batch_size=BATCH, epochs=1000, verbose=2)
""",
    )


_TF1 = """
def dense(name, x, units, activation=None):
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [x.shape[1], units])
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    y = tf.matmul(x, kernel) + bias
    return y if activation is None else activation(y)


def conv(name, x, filters):
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [3, 3, x.shape[3], filters])
    return tf.nn.relu(tf.nn.conv2d(x, kernel, strides=1, padding="SAME"))


def words(name, x, vocabulary, width):
    with tf.variable_scope(name):
        table = tf.get_variable("table", [vocabulary, width])
    return tf.reduce_mean(tf.nn.embedding_lookup(table, x), axis=1)


"""


def _session_tower(side, tower):
    """Return the lines of a tower, which leave its top under the name of the side."""
    lines = [f"x = {side}_batch"]
    if tower.kind == "embedding":
        lines += [f'x = words("{side}_words", x, {tower.vocabulary}, {tower.width})']
    for number in range(tower.depth):
        if tower.kind == "conv":
            lines += [f'x = conv("{side}_{number}", x, {tower.width})']
        else:
            lines += [f'x = dense("{side}_{number}", x, {tower.width}, tf.nn.relu)']
    if tower.kind == "conv":
        lines += ["x = tf.reduce_mean(x, axis=[1, 2])"]
    return [*lines, f'{side} = dense("{side}_top", x, {tower.top})']


def _session_text(script):
    towers = dict(zip(SIDES, (script.left, script.right), strict=True))
    lines = []
    for side, tower in towers.items():
        dtype = "tf.int32" if tower.kind == "embedding" else "tf.float32"
        shape = ["None", *map(str, _sample(tower))]
        lines.append(f"{side}_batch = tf.placeholder({dtype}, [{', '.join(shape)}])")
    lines.append("wanted = tf.placeholder(tf.float32, [None, 1])")
    for device, (side, tower) in zip(DEVICES, towers.items(), strict=True):
        lines += _under(device, _session_tower(side, tower))
    loss = _LOSS.format(through='dense("head", tf.concat([left, right], 1), 1)')
    apart = ", colocate_gradients_with_ops=True" if script.is_apart else ""
    return _text(
        "in a session of TensorFlow 1",
        script,
        _TF1,
        [*lines, *_under(script.head, [loss])],
        f"""optimizer = tf.train.{_OPTIMIZERS[script.optimizer]}(0.001)
train = optimizer.minimize(loss{apart})

with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
    session.run(tf.global_variables_initializer())
    for step in range(4000):
        rows = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
        feeds = {{
            left_batch: left_data[rows],
            right_batch: right_data[rows],
            wanted: wanted_data[rows],
        }}
        _, reached = session.run([train, loss], feeds)
        if step % 100 == 0:
            print(f"step {{step}}: {{reached:.3f}}")
""",
    )
