"""The code of a network as TensorFlow's own functions over variables, and optimizers by hand."""

from random_model_parts.lines import indented, one_or

WEIGHT = [
    "def weight(*shape, spread=None):",
    "    spread = spread or np.sqrt(2 / np.prod(shape[:-1]))",
    "    return tf.Variable(random.normal(scale=spread, size=shape).astype(np.float32))",
]
ACTIVATIONS = {
    "": "{}",
    "relu": "tf.nn.relu({})",
    "tanh": "tf.tanh({})",
    "gelu": "tf.nn.gelu({})",
    "sigmoid": "tf.sigmoid({})",
}
# What an optimizer keeps for each variable, and how; and what it takes off the variable.
OPTIMIZERS = {
    "sgd": ({}, "LEARNING_RATE * gradient"),
    "momentum": ({"velocity": "assign(0.9 * velocity + gradient)"}, "LEARNING_RATE * velocity"),
    "adagrad": (
        {"total": "assign_add(tf.square(gradient))"},
        "LEARNING_RATE * gradient / (tf.sqrt(total) + 1e-7)",
    ),
    "rmsprop": (
        {"square": "assign(0.9 * square + 0.1 * tf.square(gradient))"},
        "LEARNING_RATE * gradient / (tf.sqrt(square) + 1e-7)",
    ),
    "adam": (
        {
            "first": "assign(0.9 * first + 0.1 * gradient)",
            "second": "assign(0.999 * second + 0.001 * tf.square(gradient))",
        },
        "rate * first / (tf.sqrt(second) + 1e-7)",
    ),
}


def variables(net):
    """Return code that makes each variable that learns, by its name."""
    made = ((part.name, _weights(part)) for part in net.parts if part.reads)
    return {f"{name}_{what}": code for name, own in made for what, code in own.items()}


def averages(net):
    """Return code that makes the moving averages of batch norm, by their names."""
    return {
        f"{part.name}_{what}": f"tf.Variable(tf.{start}({part.shape[-1]}), trainable=False)"
        for part in net.parts
        if part.kind == "batch_norm"
        for what, start in (("mean", "zeros"), ("variance", "ones"))
    }


def forward(net, *, training):
    """Return a function that computes the network."""
    inputs = ", ".join(part.name for part in net.inputs)
    body = [line for part in net.parts if part.reads for line in _code(part, training=training)]
    body.append(f"return {one_or('()', [part.name for part in net.heads])}")
    return [f"def forward({inputs}):", *indented(body)]


def update(optimizer, *, clipped):
    """Return what an optimizer keeps, and how it updates `variables` from `gradients`."""
    slots, taken_off = OPTIMIZERS[optimizer]
    several = [slot.replace("ty", "tie") + "s" for slot in slots]
    kept = [f"{s} = [tf.Variable(tf.zeros_like(each)) for each in variables]" for s in several]
    each = [f"{slot}.{how}" for slot, how in slots.items()]
    each.append(f"variable.assign_sub({taken_off})")
    lines = ["gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]"]
    if clipped:
        lines.append("gradients, _ = tf.clip_by_global_norm(gradients, 1.0)")
    if optimizer == "adam":
        kept.append("steps = tf.Variable(0.0)")
        lines.append("steps.assign_add(1.0)")
        lines.append("rate = LEARNING_RATE * tf.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)")
    names = ", ".join(["variable", "gradient", *slots])
    over = ", ".join(["variables", "gradients", *several])
    return kept, [*lines, f"for {names} in zip({over}):", *indented(each)]


def _weights(part):
    before, units = part.last, part.shape[-1]
    bias = f"tf.Variable(tf.zeros({units}))"
    own = f"weight({units}, {units}, spread={units**-0.5:.3f})"
    dense = {"w": f"weight({before}, {units})", "b": bias}
    return {
        **{"dense": dense, "head": dense},
        "conv": {"w": f"weight(3, 3, {before}, {units})", "b": bias},
        "embedding": {"rows": f"weight({part.rows}, {units}, spread=0.05)"},
        "recurrent": {"in": f"weight({before}, {units})", "w": own, "b": bias},
        "batch_norm": {"scale": f"tf.Variable(tf.ones({units}))", "b": bias},
    }.get(part.kind, {})


def _code(part, *, training):
    name, reads = part.name, [read.name for read in part.reads]
    x = reads[0]
    if part.kind == "batch_norm":
        return _batch_norm(part, x, training=training)
    if part.kind == "recurrent":
        return _recurrent(part, x)
    activated = ACTIVATIONS[part.activation]
    dense = activated.format(f"tf.matmul({x}, {name}_w) + {name}_b")
    code = {
        **{"dense": dense, "head": dense},
        "conv": activated.format(f'tf.nn.conv2d({x}, {name}_w, 1, "SAME") + {name}_b'),
        "pool": f'tf.nn.max_pool2d({x}, 2, 2, "VALID")',
        "flatten": f"tf.reshape({x}, (-1, {part.shape[0]}))",
        "embedding": f"tf.gather({name}_rows, {x})",
        "average": f"tf.reduce_mean({x}, axis=1)",
        "dropout": f"tf.nn.dropout({x}, {part.rate})" if training else x,
        "concat": f"tf.concat([{', '.join(reads)}], axis=-1)",
        "add": " + ".join(reads),
        "multiply": " * ".join(reads),
    }[part.kind]
    return [f"{name} = {code}"]


def _batch_norm(part, x, *, training):
    name = part.name
    learnt = f"{name}_b, {name}_scale, 1e-3"
    if not training:
        of = f"{x}, {name}_mean, {name}_variance, {learnt}"
        return [f"{name} = tf.nn.batch_normalization({of})"]
    return [
        f"mean, variance = tf.nn.moments({x}, {list(range(len(part.shape)))})",
        f"{name}_mean.assign(0.9 * {name}_mean + 0.1 * mean)",
        f"{name}_variance.assign(0.9 * {name}_variance + 0.1 * variance)",
        f"{name} = tf.nn.batch_normalization({x}, mean, variance, {learnt})",
    ]


def _recurrent(part, x):
    name = part.name
    span = "range" if part.unrolled else "tf.range"
    state = f"tf.matmul({x}[:, step], {name}_in) + tf.matmul({name}, {name}_w) + {name}_b"
    return [
        f"{name} = tf.zeros((tf.shape({x})[0], {part.shape[-1]}))",
        f"for step in {span}({part.reads[0].shape[0]}):",
        f"    {name} = tf.tanh({state})",
    ]
