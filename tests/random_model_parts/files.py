"""The text of a model file, for each way in which a step is written."""

from random_model_parts import keras_code, raw_code
from random_model_parts.lines import indented, one_or
from random_model_parts.net import gan_nets, sized

# What each sample loses, from the names of a head's output and of its target.
LOSSES = {
    "score": "tf.square({output} - {target})",
    "label": "tf.nn.sparse_softmax_cross_entropy_with_logits({target}, {output})",
    "chance": "tf.nn.sigmoid_cross_entropy_with_logits({target}, {output})",
}
BATCHES = 4


def file_text(draw):
    """Return the text of the file."""
    target_ns = draw.target_ms * 1e6
    if draw.form == "gan":
        maker, critic = gan_nets(draw.plan, draw.batch_size, target_ns)
        body = _gan(draw, maker, critic)
    else:
        net = sized(draw.plan, draw.batch_size, target_ns, training=draw.training)
        body = (_raw if draw.form == "raw" else _keras)(draw, net)
    own_workload = "workload" in "".join(body)
    kinds = f"{draw.plan.structure}, {draw.form}, {'training' if draw.training else 'inference'}"
    lines = [
        f'"""A model drawn at random, seed {draw.seed}: {kinds}.',
        "",
        f"A step is to take about {draw.target_ms:.1f} ms on one core.",
        '"""',
        "",
        *(["import keras"] if draw.form != "raw" else []),
        "import numpy as np",
        "import tensorflow as tf",
        *(["", "from placement_advisor import Workload"] if own_workload else []),
        "",
        f"BATCH_SIZE = {draw.batch_size}",
        *([f"LEARNING_RATE = {draw.learning_rate}"] if draw.training else []),
        f"SEED = {draw.seed}",
        "",
        "tf.random.set_seed(SEED)" if draw.form == "raw" else "keras.utils.set_random_seed(SEED)",
        "random = np.random.default_rng(SEED)",
        *body,
    ]
    return "\n".join(lines) + "\n"


def _keras(draw, net):
    """Return a Keras model and what trains it."""
    if draw.form in ("subclassed", "own_train_step"):
        lines = keras_code.subclassed(net, named=draw.named)
        if draw.form == "own_train_step":
            lines += ["", *indented(_own_train_step(draw, net))]
        made = "model = DrawnModel()"
    else:
        lines = keras_code.functional(net, named=draw.named, open_batch=draw.open_batch)
        made = "model = make_model()"
    lines = ["", "", *lines, "", "", made]
    if draw.form in ("loop", "two_optimizers"):
        return [*lines, *_loop(draw, net)]
    if draw.training:
        optimizer = keras_code.optimizer_code(draw.optimizer, clipped=draw.clipped)
        losses = one_or("[]", [keras_code.LOSSES[head.name] for head in net.heads])
        more = "" if draw.form == "own_train_step" else f", loss={losses}"
        lines.append(f"model.compile(optimizer={optimizer}{more})")
    return [*lines, *_keras_data(draw, net)]


def _own_train_step(draw, net):
    body = [
        "inputs, targets = data",
        f"{', '.join(f'{head.name}_target' for head in net.heads)} = targets",
        *_tape(draw, net, "self(inputs, training=True)", "self.trainable_variables"),
        "self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))",
        'return {"loss": loss}',
    ]
    return ["def train_step(self, data):", *indented(body)]


def _loop(draw, net):
    """Return a step of one's own around a Keras model, with one optimizer or with two."""
    optimizer = keras_code.optimizer_code(draw.optimizer, clipped=draw.clipped)
    inputs = one_or("[]", [part.name for part in net.inputs])
    if draw.form == "loop":
        groups = {"optimizer": (optimizer, "model.trainable_variables")}
    else:
        other = keras_code.optimizer_code("sgd", clipped=False)
        groups = {
            "lower_optimizer": (optimizer, "model.trainable_variables[:-2]"),
            "upper_optimizer": (other, "model.trainable_variables[-2:]"),
        }
    step = _tape(draw, net, f"model({inputs}, training=True)", "model.trainable_variables")
    lines = []
    for name, (code, variables) in groups.items():
        lines += [f"{name} = {code}", f"{name}.build({variables})"]
        cut = variables.removeprefix("model.trainable_variables")
        step.append(f"{name}.apply_gradients(zip(gradients{cut}, {variables}))")
    step.append("return loss")
    return [*lines, *_train_step(net, step), *_data(draw, net)]


def _gan(draw, maker, critic):
    """Return two networks that train against each other, as Keras' own example has it."""
    noise, real = maker.inputs[0].shape[0], critic.inputs[0]
    one = keras_code.optimizer_code(draw.optimizer, clipped=draw.clipped)
    how = {"named": draw.named, "open_batch": True}
    lines = ["", "", *keras_code.functional(maker, maker="make_generator", **how), "", ""]
    lines += [*keras_code.functional(critic, maker="make_critic", **how), "", ""]
    text = f"""\
class Gan(keras.Model):
    def __init__(self, generator, critic):
        super().__init__()
        self.generator = generator
        self.critic = critic

    def compile(self, generator_optimizer, critic_optimizer):
        super().compile()
        self.generator_optimizer = generator_optimizer
        self.critic_optimizer = critic_optimizer
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)

    def train_step(self, real):
        noise = tf.random.normal((BATCH_SIZE, {noise}))
        labels = tf.concat([tf.zeros((BATCH_SIZE, 1)), tf.ones((BATCH_SIZE, 1))], axis=0)
        both = tf.concat([self.generator(noise), real], axis=0)
        with tf.GradientTape() as tape:
            critic_loss = self.loss_of(labels, self.critic(both, training=True))
        gradients = tape.gradient(critic_loss, self.critic.trainable_weights)
        self.critic_optimizer.apply_gradients(zip(gradients, self.critic.trainable_weights))

        noise = tf.random.normal((BATCH_SIZE, {noise}))
        with tf.GradientTape() as tape:
            chance = self.critic(self.generator(noise, training=True))
            generator_loss = self.loss_of(tf.ones((BATCH_SIZE, 1)), chance)
        gradients = tape.gradient(generator_loss, self.generator.trainable_weights)
        self.generator_optimizer.apply_gradients(zip(gradients, self.generator.trainable_weights))
        return {{"critic_loss": critic_loss, "generator_loss": generator_loss}}


model = Gan(make_generator(), make_critic())
model.compile({one}, {one})
real = {_sample(real, f"{BATCHES} * BATCH_SIZE")}
dataset = tf.data.Dataset.from_tensor_slices(real).batch(BATCH_SIZE, drop_remainder=True)"""
    return [*lines, *text.split("\n")]


def _raw(draw, net):
    """Return variables, a function of them, and a step that trains or infers."""
    learnt = raw_code.variables(net)
    lines = ["", "", *raw_code.WEIGHT, "", ""]
    made = {**learnt, **raw_code.averages(net)}
    lines += [f"{name} = {code}" for name, code in made.items()]
    forward = ["", "", *raw_code.forward(net, training=draw.training), "", ""]
    inputs = ", ".join(part.name for part in net.inputs)
    if not draw.training:
        step = ["@tf.function", f"def step({inputs}):", f"    return forward({inputs})"]
        return [*lines, *forward, *step, *_data(draw, net)]
    kept, update = raw_code.update(draw.optimizer, clipped=draw.clipped)
    lines += ["variables = [", *(f"    {name}," for name in learnt), "]", *kept]
    body = [*_tape(draw, net, f"forward({inputs})", "variables"), *update, "return loss"]
    return [*lines, *forward[:-2], *_train_step(net, body), *_data(draw, net)]


def _tape(draw, net, call, variables):
    """Return what finds the gradients of the loss of a call."""
    return [
        "with tf.GradientTape() as tape:",
        f"    {', '.join(head.name for head in net.heads)} = {call}",
        f"    loss = {_loss(draw, net)}",
        f"gradients = tape.gradient(loss, {variables})",
    ]


def _loss(draw, net):
    terms = []
    for head in net.heads:
        each = LOSSES[head.name].format(output=head.name, target=f"{head.name}_target")
        mean = f"tf.reduce_mean({each})"
        terms.append(mean if draw.mean else f"tf.reduce_sum({each}) / BATCH_SIZE")
    return " + ".join(terms)


def _train_step(net, body):
    arguments = [part.name for part in net.inputs] + [f"{head.name}_target" for head in net.heads]
    return ["", "", "@tf.function", f"def train_step({', '.join(arguments)}):", *indented(body)]


def _data(draw, net):
    """Return what a step of one's own is called with."""
    asked, targets, in_batches = _values(draw, net)
    batch = [*(f"    {value}," for value in [*asked, *targets]), ")"]
    if in_batches:
        return ["", "", "samples = (", *batch, *in_batches]
    if draw.given == "inputs" and draw.training:
        return ["", "", "inputs = (", *batch]
    step, mode = ("train_step", "train") if draw.training else ("step", "infer")
    body = ["batch = (", *batch, f'return Workload(step={step}, inputs=batch, mode="{mode}")']
    return ["", "", "def workload():", *indented(body)]


def _keras_data(draw, net):
    """Return what a Keras model is trained with, or asked."""
    asked, targets, in_batches = _values(draw, net)
    x = one_or("()", asked)
    if not draw.training:
        return [f"inputs = ({x},)"]
    name = "samples" if in_batches else "inputs"
    return [f"{name} = ({x}, {one_or('()', targets)})", *in_batches]


def _values(draw, net):
    """Return inputs and targets, and what makes batches of `samples` where they are several."""
    count, in_batches = "BATCH_SIZE", []
    if draw.given == "dataset" and draw.training:
        count = f"{BATCHES} * BATCH_SIZE"
        batches = "from_tensor_slices(samples).batch(BATCH_SIZE, drop_remainder=True)"
        in_batches = [f"dataset = tf.data.Dataset.{batches}"]
    targets = [_target(head, count) for head in net.heads] if draw.training else []
    return [_sample(part, count) for part in net.inputs], targets, in_batches


def _sample(part, count):
    size = f"({', '.join([count, *map(str, part.shape)])})"
    if part.kind == "ids":
        return f"random.integers({part.rows}, size={size}, dtype=np.int32)"
    return f"random.normal(size={size}).astype(np.float32)"


def _target(head, count):
    if head.name == "label":
        return f"random.integers({head.shape[0]}, size={count}, dtype=np.int32)"
    if head.name == "chance":
        return f"random.integers(2, size=({count}, 1)).astype(np.float32)"
    return f"random.normal(size=({count}, 1)).astype(np.float32)"
