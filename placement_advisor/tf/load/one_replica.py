"""A strategy of `tf.distribute` that is one replica, in place of those that a script makes.

What it is asked to run, reduce and distribute it leaves as it is. Its scope is the one around it:
none, or that of another strategy which runs the whole script as one of its replicas. It takes the
place of classes, and stays an instance of a strategy, as Keras and users ask `isinstance`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAMES = (
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "TPUStrategy",
    "experimental.CentralStorageStrategy",
    "experimental.MultiWorkerMirroredStrategy",
    "experimental.ParameterServerStrategy",
    "experimental.TPUStrategy",
)


def strategies() -> Iterator[tuple[Any, str, type]]:
    """Yield the classes of strategies: their module, their name in it, and themselves."""
    for path in _NAMES:
        *folders, name = path.split(".")
        owner = tf.distribute
        for folder in folders:
            owner = getattr(owner, folder)
        original = getattr(owner, name, None)
        if original is not None:
            yield owner, name, original


def in_place_of(original: type, note: Callable[[], None]) -> type:
    """Return a class whose instances are one replica; ``note`` is called when one is made."""

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        note()
        return OneReplica("/cpu:0")

    return type(original.__name__, (original,), {"__new__": new})


class OneReplica(tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
    """One replica, wherever it is."""

    def scope(self) -> Any:
        """Return the scope that is there already."""
        return nullcontext(self)

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Call the function."""
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Return the value of the only replica, along an axis their sum or mean."""
        if axis is None:
            return value
        op = tf.distribute.ReduceOp(getattr(reduce_op, "value", reduce_op).upper())
        reduced = tf.reduce_sum if op is tf.distribute.ReduceOp.SUM else tf.reduce_mean
        return tf.nest.map_structure(lambda each: reduced(each, axis), value)

    def gather(self, value: Any, axis: Any) -> Any:
        """Return the value of the only replica."""
        return value

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """Return the dataset."""
        return dataset

    def distribute_datasets_from_function(self, dataset_fn: Any, options: Any = None) -> Any:
        """Return the dataset of the only worker."""
        return dataset_fn(tf.distribute.InputContext())

    def experimental_local_results(self, value: Any) -> Any:
        """Return the value as the only one."""
        return (value,)
