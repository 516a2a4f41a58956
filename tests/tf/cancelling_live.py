"""What tests of sums that cancel do in a child."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import tensorflow as tf

from placement_advisor.tf.placed_step import PlacedStep, Runtime, placed_graph
from placement_advisor.tf.user_step import live_step
from placement_advisor.tf.verifier import find_cancelling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.tf.trace.bundle import Bundle

_DEVICE = "/device:CPU:0"


def found_and_resets(reads_after_an_update: bool) -> tuple[list[str], int]:
    """Return the kinds of ops that make noise of a bias, and how often a step was reset for it.

    The batch is normalized after the bias, and what the bias is updated by is scaled several times.
    It may be scaled by a number of steps as well, which is counted up before it is read.
    """
    random = np.random.default_rng(3)
    weight = tf.Variable(random.normal(size=(6, 5)).astype(np.float32), name="weight")
    bias = tf.Variable(random.normal(size=5).astype(np.float32), name="bias")
    count = tf.Variable(1.0, name="count")

    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = x @ weight + bias
            centred = hidden - tf.reduce_mean(hidden, 0)
            loss = tf.reduce_mean(tf.reduce_sum((centred - y) ** 2, 1))
        of_weight, of_bias = tape.gradient(loss, (weight, bias))
        scale = 1.0
        if reads_after_an_update:
            count.assign_add(1.0)
            scale = count.read_value()
        weight.assign_sub(0.1 * of_weight)
        bias.assign_sub(0.1 * (0.5 * (0.5 * (scale * of_bias))))
        return {"loss": loss}

    batch = random.normal(size=(8, 6)).astype(np.float32), random.normal(size=(8, 5))
    traced = live_step(train_step, (batch[0], batch[1].astype(np.float32)))
    bundle = traced.flat.bundle(traced.batches())

    def place(step: Bundle, device_of: Mapping[str, str]) -> PlacedStep:
        graph = placed_graph(step, device_of, _DEVICE)
        return PlacedStep(step, graph, Runtime(address="", logical_cpus=1), 60.0)

    placed = {node.name: _DEVICE for node in bundle.graph_def.node}
    (name,) = (name for name, value in bundle.variables.items() if value.shape == (5,))
    with patch.object(PlacedStep, "reset", autospec=True, side_effect=PlacedStep.reset) as reset:
        found = find_cancelling(place, bundle, placed, [name], bundle)
    kinds = {node.name: node.op for node in bundle.graph_def.node}
    return [kinds[each.op] for each in found], reset.call_count
