"""How long the collectives of a `tf.distribute` strategy take, one after the other."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.cost.collectives import CollectiveTimes, fit_collectives
from placement_advisor.tf.run.bench import timed

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes: what a bias, a small and a large layer have for gradients.
_SIZES = (4 << 10, 256 << 10, 2 << 20)
_ROW_BYTES = 256
_INDEX_SHARE = tf.int64.size / _ROW_BYTES
# How many rows there are, the rows, and their indices.
_GATHERS_OF_ROWS = 3
# Judgement: four collectives one after the other are told apart from the call that starts them, and
# the medians of eleven runs stand up to five that are disturbed. It takes some seconds in all.
_CHAIN = 4
_WARM_UP, _REPEATS = 2, 11
# Over a slow network fewer runs have to do: what takes that long is hardly disturbed.
_BUDGET_NS = 4e9


def time_collectives(strategy: Any) -> CollectiveTimes:
    """Time exchanges of dense and of sparse gradients among the strategy's replicas."""
    count = strategy.num_replicas_in_sync

    def dense(rows: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, [rows])[0] / count

    def sparse(rows: Any) -> Any:
        indices = tf.range(rows.shape[0], dtype=tf.int64)
        slices = tf.IndexedSlices(rows, indices, tf.shape(rows, out_type=tf.int64))
        context = tf.distribute.get_replica_context()
        (every,) = context.all_reduce(tf.distribute.ReduceOp.SUM, [slices])
        return tf.ensure_shape(every.values[: rows.shape[0]], rows.shape)

    dense_ns, dense_calls = _times(strategy, dense)
    sparse_ns, sparse_calls = _times(strategy, sparse)
    sent = 2 * (count - 1) / count
    gathered = (count - 1) * (1 + _INDEX_SHARE) / _GATHERS_OF_ROWS
    return fit_collectives(
        [(round(sent * size), time_ns) for size, time_ns in dense_ns.items()],
        [(round(gathered * size), t_ns / _GATHERS_OF_ROWS) for size, t_ns in sparse_ns.items()],
        replicas=count,
        call_ns=median([*dense_calls, *sparse_calls]),
    )


def _times(
    strategy: Any, exchange: Callable[[Any], Any]
) -> tuple[dict[int, float], tuple[float, ...]]:
    """Return what an exchange takes, in ns, by the bytes of its rows, and what calls take beside.

    Steps with one exchange and with several in a row take the same beside them.
    """
    found, calls = {}, []
    for size_bytes in _SIZES:
        chains = [_chained(strategy, exchange, n, size_bytes) for n in (1, 1 + _CHAIN)]
        for _ in range(_WARM_UP):
            took_ns = sum(timed(run) for run in chains)
        affordable = int(_BUDGET_NS / _agreed(strategy, took_ns))
        repeats = max(1, min(_REPEATS, affordable))
        times = [[timed(run) for run in chains] for _ in range(repeats)]
        one, several = map(median, zip(*times, strict=True))
        found[size_bytes] = max(1.0, (several - one) / _CHAIN)
        calls.append(max(0.0, one - found[size_bytes]))
    return found, tuple(calls)


def _agreed(strategy: Any, took_ns: float) -> float:
    """Return the mean of what replicas found, the same for all: they have to run as often."""

    def exchange() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.constant([took_ns], tf.float64))

    found = tf.function(lambda: strategy.run(exchange), autograph=False)()
    return float(strategy.experimental_local_results(found)[0].numpy()[0])


def _chained(
    strategy: Any, exchange: Callable[[Any], Any], length: int, size_bytes: int
) -> Callable[[], Any]:
    """Return what runs some exchanges, each of what the one before it gives."""

    def chain() -> Any:
        rows = tf.ones([size_bytes // _ROW_BYTES, _ROW_BYTES // tf.float32.size])
        for _ in range(length):
            rows = exchange(rows)
        return rows[0, 0]

    function = tf.function(lambda: strategy.run(chain), autograph=False)

    def run() -> None:
        for part in strategy.experimental_local_results(function()):
            part.numpy()

    return run
