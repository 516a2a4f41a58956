"""Stands for TensorFlow Datasets: sets of made-up samples, drawn one by one."""

from dataclasses import dataclass
from types import SimpleNamespace

import tensorflow as tf
from public_sets import texts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Set:
    """Samples by split, the shape of an image (None is text), and the classes."""

    samples: dict[str, int]
    shape: tuple[int, ...] | None
    classes: int


_SETS = {
    "imdb_reviews": _Set(samples={"train": 25_000, "test": 25_000}, shape=None, classes=2),
    "oxford_flowers102": _Set(
        samples={"train": 1_020, "validation": 1_020, "test": 6_149},
        shape=(500, 667, 3),
        classes=102,
    ),
    "stl10": _Set(
        samples={"train": 5_000, "test": 8_000, "unlabelled": 100_000},
        shape=(96, 96, 3),
        classes=10,
    ),
    "tf_flowers": _Set(samples={"train": 3_670}, shape=(333, 500, 3), classes=5),
}


def disable_progress_bar():
    """Do nothing: there is none."""


def load(name, split=None, *, as_supervised=False, batch_size=None, with_info=False, **_):
    """Return a data set for each split, or for the one that is asked for."""
    if name not in _SETS:
        raise OSError(f"not downloaded: data set {name}")
    splits = [split] if isinstance(split, str) else split
    made = [_made(_SETS[name], each, as_supervised) for each in splits]
    if batch_size == -1:
        made = [next(iter(each.batch(each.cardinality()))) for each in made]
    found = made[0] if isinstance(split, str) else made
    classes = _SETS[name].classes
    info = SimpleNamespace(
        features={
            "label": SimpleNamespace(num_classes=classes, names=list(map(str, range(classes))))
        }
    )
    return (found, info) if with_info else found


def as_numpy(given):
    """Return arrays in place of tensors."""
    return tf.nest.map_structure(lambda each: each.numpy(), given)


def _count(wanted, part):
    """Return the samples of a split, or of a share of it, as in `train[:90%]`."""
    name, _, share = part.partition("[")
    first, _, last = share.rstrip("]").replace("%", "").partition(":")
    return wanted.samples[name] * (int(last or 100) - int(first or 0)) // 100


def _made(wanted, split, as_supervised):
    count = sum(_count(wanted, each.strip()) for each in split.split("+"))

    def image(number):
        return tf.cast(tf.random.uniform(wanted.shape, 0, 256, tf.int32), tf.uint8), number

    numbers = tf.data.Dataset.range(count)
    if wanted.shape is None:
        pairs = tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(texts(count)), numbers))
    else:
        pairs = numbers.map(image)
    key = "text" if wanted.shape is None else "image"
    pairs = pairs.map(lambda what, number: (what, number % wanted.classes))
    return pairs if as_supervised else pairs.map(lambda what, label: {key: what, "label": label})
