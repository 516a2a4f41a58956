"""What is drawn of a model; its text is written from it."""

import random
from dataclasses import dataclass

from random_model_parts import keras_code, raw_code
from random_model_parts.files import file_text
from random_model_parts.net import GATES, Plan, Trunk

MIN_MS, MAX_MS = 0.5, 200.0
# A step this short holds few layers, however narrow: what starts an op takes its time. One this
# long holds several, however wide.
SHORT_MS, LONG_MS = 4.0, 20.0
# How a step is written, and how often. "loop" is a `tf.function` around a Keras model.
FORMS = {
    "functional": 3,
    "subclassed": 2,
    "own_train_step": 2,
    "gan": 1,
    "loop": 2,
    "two_optimizers": 1,
    "raw": 4,
}
ALSO_INFERS = ("functional", "subclassed", "raw")
INFERENCE_SHARE = 0.4
STRUCTURES = ("chain", "towers", "unequal_towers", "cross_stitched", "experts")
KINDS = ("dense", "dense", "conv", "recurrent", "embedding")
INPUT_SIZES = {
    "dense": (8, 16, 32, 64),
    "conv": (8, 12, 16, 24, 32),
    "recurrent": (4, 6, 8, 12),
    "embedding": (8, 16, 32, 64),
}
LEARNING_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
ALL_FEATURES = frozenset(
    {"training", "inference", "several_inputs", "several_outputs", "mean_loss", "sum_loss"}
    | {"batch_norm", "dropout", "clipped", "unrolled", "loop_in_graph", "auto_names"}
    | {*FORMS, *STRUCTURES, *KINDS, *keras_code.OPTIMIZERS}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomModel:
    """What was drawn of a model; its loss is a mean over the batch, or a sum over its size."""

    seed: int
    form: str
    plan: Plan
    training: bool
    optimizer: str
    learning_rate: float
    batch_size: int
    target_ms: float
    named: bool
    open_batch: bool
    clipped: bool
    mean: bool
    given: str

    @property
    def text(self):
        """The text of its file."""
        return file_text(self)

    @property
    def features(self):
        """Words of `ALL_FEATURES` for what was drawn."""
        trunks, training = self.plan.trunks, self.training
        recurrent = [trunk for trunk in trunks if trunk.kind == "recurrent"]
        words = {
            "training": training,
            "inference": not training,
            self.form: True,
            self.plan.structure: True,
            self.optimizer: training,
            "mean_loss": training and self.mean,
            "sum_loss": training and not self.mean,
            "clipped": training and self.clipped,
            "two_optimizers": self.form in ("gan", "two_optimizers"),
            "batch_norm": any(trunk.batch_norm for trunk in trunks),
            "dropout": any(trunk.dropout for trunk in trunks),
            "unrolled": any(trunk.unrolled for trunk in recurrent),
            "loop_in_graph": any(not trunk.unrolled for trunk in recurrent),
            "several_inputs": self.plan.structure not in ("chain", "experts"),
            "several_outputs": len(self.plan.heads) > 1,
            "auto_names": not self.named and self.form != "raw",
            **{trunk.kind: True for trunk in trunks},
        }
        return frozenset(word for word, holds in words.items() if holds)


def random_model(seed, *, needs=(), without=(), learning_rate=None, max_ms=MAX_MS):
    """Return the model of a seed.

    It is drawn again until it has all features that are needed and none that is not wanted, for
    example ``needs={"training", "adam", "batch_norm"}``. Given a learning rate, that is taken.

    Raises:
        ValueError: If no model is like that.
    """
    unknown = {*needs, *without} - ALL_FEATURES
    if unknown:
        raise ValueError(f"no model has {sorted(unknown)}; choose from {sorted(ALL_FEATURES)}")
    for attempt in range(20_000):
        drawn = _once(seed, attempt, learning_rate, max_ms)
        if drawn.features.issuperset(needs) and drawn.features.isdisjoint(without):
            return drawn
    raise ValueError(f"no model has all of {sorted(needs)} and none of {sorted(without)}")


def _once(seed, attempt, learning_rate, max_ms):
    rng = random.Random(f"{seed} {attempt}")
    form = rng.choices(list(FORMS), list(FORMS.values()))[0]
    target_ms = MIN_MS * (max_ms / MIN_MS) ** rng.random()
    rate = rng.choice(LEARNING_RATES)
    optimizers = raw_code.OPTIMIZERS if form == "raw" else keras_code.OPTIMIZERS
    return RandomModel(
        seed=seed,
        form=form,
        plan=_plan(rng, target_ms, form),
        training=form not in ALSO_INFERS or rng.random() > INFERENCE_SHARE,
        optimizer=rng.choice(list(optimizers)),
        learning_rate=rate if learning_rate is None else learning_rate,
        batch_size=2 ** rng.randint(3, 8),
        target_ms=target_ms,
        named=rng.random() < 0.5,
        open_batch=rng.random() < 0.3,
        clipped=rng.random() < 0.2,
        # What Keras makes of its own losses is a mean.
        mean=form in ("functional", "subclassed") or rng.random() < 0.6,
        given=rng.choice(("dataset", "inputs", "workload")),
    )


def _plan(rng, target_ms, form):
    gan = form == "gan"
    structure = "chain" if gan else rng.choice(STRUCTURES)
    short = target_ms < SHORT_MS
    number = 1 if structure == "chain" else rng.randint(2, 2 if short else 4)
    depth = rng.randint(3 if target_ms > LONG_MS else 1, 2 if short else 6)
    kinds = ("dense",) if gan or structure == "cross_stitched" else KINDS
    # By hand only the simplest recurrent cell is written.
    cells = ("SimpleRNN",) if form == "raw" else tuple(GATES)
    trunks = [_trunk(rng, kinds, cells, depth)] * number
    if structure == "unequal_towers":
        widths = (rng.choice((0.25, 0.5, 1.0)) for _ in trunks)
        trunks = [_trunk(rng, kinds, cells, rng.randint(1, depth), width) for width in widths]
    heads = rng.sample(["score", "label", "chance"], rng.choice((1, 1, 1, 2)))
    return Plan(
        structure=structure,
        trunks=tuple(trunks),
        heads=("chance",) if gan else tuple(heads),
        join=rng.choice(("concat", "add", "multiply")),
    )


def _trunk(rng, kinds, cells, depth, width=1.0):
    kind = rng.choice(kinds)
    return Trunk(
        kind=kind,
        depth=depth,
        width=width,
        input_size=rng.choice(INPUT_SIZES[kind]),
        activation=rng.choice(("relu", "tanh", "gelu")),
        batch_norm=rng.random() < (0.6 if kind == "conv" else 0.2),
        dropout=rng.choice((0.0, 0.0, 0.1, 0.5)),
        cell=rng.choice(cells),
        unrolled=rng.random() < 0.4,
    )
