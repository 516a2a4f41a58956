"""How to carry out a placement, in the forms that a user can act on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from placement_advisor.analysis.advice.listing import code_listing, tf_device
from placement_advisor.analysis.advice.words import MOST_IN_ONE_LINE, placement_in_words
from placement_advisor.analysis.analysis_result import HowToSplit
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import ON_HOST, SPREAD, VARIABLES
from placement_advisor.candidates.towers import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster


# What stands for `step` and `inputs` is not known here: the analysis may have made them.
_FILL_IN = """import placement_advisor

# step is yours: the compiled Keras model, or the function of one training step. inputs is one batch
# for it: (x, y) of a Keras model, the arguments of a function.
"""
_PLACE = (
    _FILL_IN
    + """step = placement_advisor.place(step, {file}, *inputs)
"""
)
_PARALLEL = (
    _FILL_IN + "step = placement_advisor.make_parallel("
    "step, {devices}, ratios={ratios}{variables}, inputs=inputs)\n"
)
_OVER_PAIRS = (
    _FILL_IN
    + """step = placement_advisor.make_parallel(
    step, {groups}, ratios={ratios}, placement={file}, inputs=inputs
)
"""
)
_MIRRORED = """import tensorflow as tf

strategy = tf.distribute.MirroredStrategy({devices})
with strategy.scope():
    model = make_model()  # make and compile the model here
model.fit(dataset)  # batches of {batch}: {samples} on each device
"""


def how_to_split(graph: OpGraph, placement: Placement, folder: Path) -> HowToSplit:
    """Return how to carry out a placement of the graph, which an analysis writes into a folder."""
    words = placement_in_words(graph, placement)
    return HowToSplit(
        candidate=placement.label,
        words=words,
        words_in_short=placement_in_words(graph, placement, most=MOST_IN_ONE_LINE),
        call=_PLACE.format(file=_file(folder, placement.label)),
        listing=code_listing(graph, placement, f"{placement.label}: {words}."),
    )


def how_to_split_batch(
    label: str, family: str, samples: Sequence[int], cluster: Cluster
) -> HowToSplit:
    """Return how to carry out a split of the batch, with so many samples on each device.

    ``family`` says where variables stand.
    """
    devices = cluster.devices[: len(samples)]
    each = ", ".join(f"{n} on {d.name}" for n, d in zip(samples, devices, strict=True))
    where = {
        BATCH: f"on {devices[0].name}",
        ON_HOST: f"on {devices[0].host}",
        SPREAD: "spread over these, by size",
    }
    words = (
        f"of the {sum(samples)} samples of a batch {each}, gradients with them; variables and "
        f"their update {where[family]}"
    )
    call = _PARALLEL.format(
        devices=json.dumps([tf_device(device.name, i) for i, device in enumerate(devices)]),
        ratios=list(samples),
        variables="" if family == BATCH else f', variables="{VARIABLES[family]}"',
    )
    return HowToSplit(candidate=label, words=words, words_in_short=words, call=call, listing=None)


def how_to_split_over_pairs(
    label: str, samples: Sequence[int], cluster: Cluster, folder: Path
) -> HowToSplit:
    """Return how to carry out a split of the batch over pairs of devices, the model within each."""
    names = [device.name for device in cluster.devices]
    pairs = [names[GROUP * i : GROUP * (i + 1)] for i in range(len(samples))]
    each = ", ".join(f"{n} on {' and '.join(pair)}" for n, pair in zip(samples, pairs, strict=True))
    words = (
        f"of the {sum(samples)} samples of a batch {each}, every pair laid out as "
        f"placements/{label}.json says; variables and their update on {' and '.join(pairs[0])}"
    )
    real = iter([tf_device(name, i) for i, name in enumerate(names)])
    call = _OVER_PAIRS.format(
        groups=json.dumps([[next(real) for _ in pair] for pair in pairs]),
        ratios=list(samples),
        file=_file(folder, label),
    )
    return HowToSplit(candidate=label, words=words, words_in_short=words, call=call, listing=None)


def how_to_mirror(label: str, samples: Sequence[int], cluster: Cluster) -> HowToSplit:
    """Return how to train copies of a model, with so many samples of a batch on each device."""
    devices = cluster.devices[: len(samples)]
    words = (
        f"{samples[0]} of the {sum(samples)} samples of a batch on each of "
        f"{', '.join(device.name for device in devices)}; all have the variables and update them "
        "from gradients that they exchange"
    )
    call = _MIRRORED.format(
        devices=json.dumps([tf_device(device.name, i) for i, device in enumerate(devices)]),
        batch=sum(samples),
        samples=samples[0],
    )
    return HowToSplit(candidate=label, words=words, words_in_short=words, call=call, listing=None)


def _file(folder: Path, label: str) -> str:
    """Return the path of a candidate's placement file, from where the analysis was asked for."""
    return json.dumps((folder / "placements" / f"{label}.json").as_posix(), ensure_ascii=False)
