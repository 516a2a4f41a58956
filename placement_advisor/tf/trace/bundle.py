"""A traced step on disk: graph, state and example batches, so that runners need no user code."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from placement_advisor.tf.trace.v1_loops import Loop

_GRAPH = "graph.pb"
_STATE = "state.pickle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How the batch of a step is split, in tensors of the unsplit step.

    ``samples`` are those of each replica. ``finished`` has each tensor that updates or the user are
    given of replicas' work, with the axis of the batch, None where it has none. ``growing`` tensors
    have a part for each sample. ``draws`` and ``takes_statistics`` say what replicas compute of
    their own; one that ``goes_on`` computes with what was put together from all. ``statistics`` are
    the variables that only keep statistics of the batch.
    """

    samples: tuple[int, ...]
    finished: tuple[tuple[str, int | None], ...]
    growing: frozenset[str]
    draws: bool
    takes_statistics: bool
    goes_on: bool
    statistics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything that is needed to run a step anywhere.

    ``graph_def`` is flat; variables are VarHandleOps, tables HashTableV2s. ``variables`` maps a
    handle's name to its initial value, ``tables`` to keys and values. ``batches`` are flattened,
    in the order of ``inputs``. ``outputs`` are tensors, ``targets`` ops that must run. ``loops``
    maps ops of the op graph to the ops of the graph that they stand for. ``split`` is None for a
    step whose batch is not split.
    """

    graph_def: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    variables: dict[str, np.ndarray[Any, Any]]
    tables: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
    batches: tuple[tuple[np.ndarray[Any, Any], ...], ...]
    loops: dict[str, Loop] = field(default_factory=dict)
    split: Split | None = None

    def save(self, folder: Path) -> None:
        """Write the bundle into a folder."""
        (folder / _GRAPH).write_bytes(self.graph_def.SerializeToString())
        rest = {
            name: getattr(self, name)
            for name in (
                "inputs",
                "outputs",
                "targets",
                "variables",
                "tables",
                "batches",
                "loops",
                "split",
            )
        }
        with (folder / _STATE).open("wb") as file:
            pickle.dump(rest, file, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def load(cls, folder: Path) -> Bundle:
        """Read a bundle that `save` wrote. Only our own temporary files are read."""
        graph_def = tf.compat.v1.GraphDef()
        graph_def.ParseFromString((folder / _GRAPH).read_bytes())
        with (folder / _STATE).open("rb") as file:
            return cls(graph_def=graph_def, **pickle.load(file))
