"""A network drawn at random: parts that read one another, their shapes, and what a step costs.

A plan says what is built and not how wide it is. All widths grow with one scale, which is searched
for by an estimate of a step's time. It is there for small and large models to be drawn, not to
predict anything: of 40 models on a busy machine the step took 0.65 times as long in the middle,
0.36 and 1.5 times at the 10th and 90th percentile, from 0.3 to 580 ms
(`random_model_times`, before 0.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

# Of one core of the development machine, set by hand until the times of the script above fitted.
FLOPS_PER_NS = 120.0
CONV_FLOPS_PER_NS = 40.0
BYTES_PER_NS = 8.0
PART_NS = 8_000
LOOP_STEP_NS = 60_000
# A backward pass takes about twice what the forward pass takes.
TRAINING_FACTOR = 3
FLOAT_BYTES = 4
FILTER = 3
GATES = {"SimpleRNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trunk:
    """A stack of layers over an input of its own kind; a width of 1 is as wide as others."""

    kind: str
    depth: int
    input_size: int
    width: float = 1.0
    activation: str = "relu"
    batch_norm: bool = False
    dropout: float = 0.0
    cell: str = "SimpleRNN"
    unrolled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is built: trunks, how they are joined, and the heads on top."""

    structure: str
    trunks: tuple[Trunk, ...]
    heads: tuple[str, ...]
    join: str = "concat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer; shapes are those of a sample."""

    name: str
    kind: str
    reads: tuple[Part, ...] = ()
    shape: tuple[int, ...]
    activation: str = ""
    rate: float = 0.0
    rows: int = 0
    cell: str = ""
    unrolled: bool = False

    @property
    def last(self):
        """The size of the last dimension of what it reads."""
        return self.reads[0].shape[-1]

    @property
    def weights(self):
        """How many numbers it learns."""
        if self.kind in ("dense", "head"):
            return (self.last + 1) * self.shape[-1]
        if self.kind == "conv":
            return (FILTER * FILTER * self.last + 1) * self.shape[-1]
        if self.kind == "recurrent":
            return GATES[self.cell] * (self.last + self.shape[-1] + 1) * self.shape[-1]
        if self.kind == "embedding":
            return self.rows * self.shape[-1]
        return 2 * self.shape[-1] if self.kind == "batch_norm" else 0


@dataclass(slots=True)
class Net:
    """Parts in the order in which they are written."""

    parts: list[Part] = field(default_factory=list)

    def add(self, name, kind, *reads, shape, **more):
        """Add a part and return it."""
        part = Part(name=name, kind=kind, reads=reads, shape=shape, **more)
        self.parts.append(part)
        return part

    @property
    def inputs(self):
        """What the model is given."""
        return [part for part in self.parts if part.kind in ("numbers", "ids")]

    @property
    def heads(self):
        """What the model returns."""
        return [part for part in self.parts if part.kind == "head"]

    def step_ns(self, batch, *, training):
        """Return about how long a step takes on one core."""
        total = 0.0
        for part in self.parts:
            elements = batch * math.prod(part.shape)
            places = elements / part.shape[-1]
            rate = CONV_FLOPS_PER_NS if part.kind == "conv" else FLOPS_PER_NS
            steps = 1
            if part.kind == "recurrent":
                steps = part.reads[0].shape[0]
                places = batch * steps
            multiplied = part.weights if part.kind not in ("embedding", "batch_norm") else 0
            passes = 4 if part.kind == "batch_norm" else 2
            forward = 2 * places * multiplied / rate
            forward += passes * elements * FLOAT_BYTES / BYTES_PER_NS
            forward += PART_NS + (steps - 1) * LOOP_STEP_NS
            total += forward * (TRAINING_FACTOR if training else 1)
            # The optimizer reads and writes weights, slots and gradients.
            total += 6 * part.weights * FLOAT_BYTES / BYTES_PER_NS if training else 0
        return total


NOUNS = ("user", "item", "context", "query", "page", "image", "sound", "place")
HEADS = {"score": 1, "label": 10, "chance": 1}


def build(plan, scale):
    """Return the network of a plan, its layers as wide as the scale says."""
    net = Net()
    names = NOUNS[: len(plan.trunks)]
    if plan.structure == "chain":
        top = _trunk(net, _input(net, plan.trunks[0], "features"), plan.trunks[0], "layer", scale)
    elif plan.structure == "experts":
        top = _experts(net, plan, scale)
    elif plan.structure == "cross_stitched":
        top = _cross_stitched(net, plan, names, scale)
    else:
        tops = [
            _trunk(net, _input(net, trunk, name), trunk, name, scale)
            for trunk, name in zip(plan.trunks, names, strict=True)
        ]
        top = _joined(net, tops, plan.join)
    for head in plan.heads:
        net.add(head, "head", top, shape=(HEADS[head],))
    return net


def sized(plan, batch, target_ns, *, training):
    """Return the network of a plan whose step takes about so long, or the nearest that can be."""
    low, high = math.log(4.0), math.log(4096.0)
    for _ in range(20):
        middle = (low + high) / 2
        if build(plan, math.exp(middle)).step_ns(batch, training=training) < target_ns:
            low = middle
        else:
            high = middle
    return build(plan, math.exp(low))


def gan_nets(plan, batch, target_ns):
    """Return a network that makes samples of noise, and one that tells them from true ones."""
    # A step runs the critic forward and back on twice the batch, and both once on the batch.
    critic = sized(plan, batch, target_ns / 4, training=True)
    (real,) = critic.inputs
    maker = Net()
    x = maker.add("noise", "numbers", shape=(32,))
    for part in critic.parts:
        if part.kind == "dense":
            x = maker.add(f"made_{part.name}", "dense", x, shape=part.shape, activation="relu")
    maker.add("made", "head", x, shape=real.shape)
    return maker, critic


def _units(width):
    """Return a number of units that one would choose."""
    step = 16 if width >= 64 else 4
    return max(4, step * round(width / step))


def _input(net, trunk, name):
    size = trunk.input_size
    if trunk.kind == "embedding":
        return net.add(name, "ids", shape=(size,), rows=100 * size)
    shapes = {"dense": (4 * size,), "conv": (size, size, 3), "recurrent": (size, 16)}
    return net.add(name, "numbers", shape=shapes[trunk.kind])


def _trunk(net, x, trunk, name, scale):
    """Add a stack of layers and return its last, a vector for each sample."""
    units = _units(trunk.width * scale)
    if trunk.kind == "conv":
        x = _convolutions(net, x, trunk, name, _units(trunk.width * scale / 8))
        units = min(units, 256)
    elif trunk.kind == "embedding":
        width = _units(min(trunk.width * scale / 4, 128))
        x = net.add(f"{name}_table", "embedding", x, shape=(*x.shape, width), rows=x.rows)
        x = net.add(f"{name}_average", "average", x, shape=(width,))
    elif trunk.kind == "recurrent":
        how = {"cell": trunk.cell, "unrolled": trunk.unrolled}
        x = net.add(f"{name}_recurrent", "recurrent", x, shape=(units,), **how)
    for number in range(1, 2 if trunk.kind == "conv" else trunk.depth + 1):
        x = _dense(net, x, trunk, f"{name}_{number}", units)
    return x


def _dense(net, x, trunk, name, units):
    x = net.add(name, "dense", x, shape=(units,), activation=trunk.activation)
    if trunk.batch_norm and trunk.kind != "conv":
        x = net.add(f"{name}_norm", "batch_norm", x, shape=x.shape)
    if trunk.dropout:
        x = net.add(f"{name}_dropout", "dropout", x, shape=x.shape, rate=trunk.dropout)
    return x


def _convolutions(net, x, trunk, name, filters):
    for number in range(1, trunk.depth + 1):
        shape = (*x.shape[:2], filters)
        x = net.add(f"{name}_conv_{number}", "conv", x, shape=shape, activation=trunk.activation)
        if trunk.batch_norm:
            x = net.add(f"{name}_norm_{number}", "batch_norm", x, shape=shape)
        if shape[0] >= 8 and number % 2 == 0:
            half = (shape[0] // 2, shape[1] // 2, filters)
            x = net.add(f"{name}_pool_{number}", "pool", x, shape=half)
    return net.add(f"{name}_flat", "flatten", x, shape=(math.prod(x.shape),))


def _joined(net, tops, join):
    if join == "concat":
        width = sum(top.shape[0] for top in tops)
        return net.add("joined", "concat", *tops, shape=(width,))
    # Sums and products want equal widths.
    width = min(top.shape[0] for top in tops)
    how = {"shape": (width,), "activation": "tanh"}
    even = [net.add(f"{top.name}_even", "dense", top, **how) for top in tops]
    return net.add("joined", join, *even, shape=(width,))


def _cross_stitched(net, plan, names, scale):
    """Add towers of dense layers, each of whose layers reads the sum of all of the layer before."""
    tops = [
        net.add(f"{name}_in", "dense", _input(net, trunk, name), shape=(_units(scale),))
        for trunk, name in zip(plan.trunks, names, strict=True)
    ]
    for number in range(1, plan.trunks[0].depth + 1):
        mixed = net.add(f"stitch_{number}", "add", *tops, shape=tops[0].shape)
        tops = [
            _dense(net, mixed, trunk, f"{name}_{number}", mixed.shape[0])
            for trunk, name in zip(plan.trunks, names, strict=True)
        ]
    return _joined(net, tops, "concat")


def _experts(net, plan, scale):
    """Add experts that read the same input, each weighed by what it makes of it."""
    x = _input(net, plan.trunks[0], "features")
    weighed = []
    for number, trunk in enumerate(plan.trunks, start=1):
        answer = _trunk(net, x, trunk, f"expert_{number}", scale)
        gate = net.add(f"gate_{number}", "dense", answer, shape=(1,), activation="sigmoid")
        weighed.append(net.add(f"weighed_{number}", "multiply", answer, gate, shape=answer.shape))
    return net.add("blend", "add", *weighed, shape=weighed[0].shape)
