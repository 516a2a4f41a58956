"""Stands for TensorFlow Datasets: sets of made-up samples, drawn one by one."""

from types import SimpleNamespace

import tensorflow as tf
from public_sets import texts

# Samples by split, the shape of an image (None is text), and the classes.
_SETS = {
    "imdb_reviews": ({"train": 25_000, "test": 25_000}, None, 2),
    "oxford_flowers102": ({"train": 1_020, "validation": 1_020, "test": 6_149}, (500, 667, 3), 102),
    "stl10": ({"train": 5_000, "test": 8_000, "unlabelled": 100_000}, (96, 96, 3), 10),
    "tf_flowers": ({"train": 3_670}, (333, 500, 3), 5),
}


def disable_progress_bar():
    """Do nothing: there is none."""


def load(name, split=None, *, as_supervised=False, batch_size=None, with_info=False, **_):
    """Return a data set for each split, or for the one that is asked for."""
    if name not in _SETS:
        raise OSError(f"not downloaded: data set {name}")
    splits = [split] if isinstance(split, str) else split
    made = [_made(*_SETS[name], each, as_supervised) for each in splits]
    if batch_size == -1:
        made = [next(iter(each.batch(each.cardinality()))) for each in made]
    found = made[0] if isinstance(split, str) else made
    classes = _SETS[name][2]
    label = SimpleNamespace(num_classes=classes, names=list(map(str, range(classes))))
    return (found, SimpleNamespace(features={"label": label})) if with_info else found


def as_numpy(given):
    return tf.nest.map_structure(lambda each: each.numpy(), given)


def _count(samples, part):
    """Return the samples of a split, or of a share of it, as in `train[:90%]`."""
    name, _, share = part.partition("[")
    first, _, last = share.rstrip("]").replace("%", "").partition(":")
    return samples[name] * (int(last or 100) - int(first or 0)) // 100


def _made(samples, shape, classes, split, as_supervised):
    count = sum(_count(samples, each.strip()) for each in split.split("+"))

    def image(number):
        return tf.cast(tf.random.uniform(shape, 0, 256, tf.int32), tf.uint8), number

    numbers = tf.data.Dataset.range(count)
    if shape is None:
        pairs = tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(texts(count)), numbers))
    else:
        pairs = numbers.map(image)
    key = "text" if shape is None else "image"
    pairs = pairs.map(lambda what, number: (what, number % classes))
    return pairs if as_supervised else pairs.map(lambda what, label: {key: what, "label": label})
