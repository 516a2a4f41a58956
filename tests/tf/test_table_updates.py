"""PA307 on traced recommenders, and the code that its page gives to copy."""

import re

import numpy as np
import pytest
from finding_evidence import evidence_of, told

from placement_advisor.analysis.findings import step_rules
from placement_advisor.analysis.findings.rules import finding_page
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place

CODE = re.findall(r"```python\n(.*?)```", finding_page("PA307"), re.DOTALL)[0]
_MODEL = """
{code}
ids = keras.Input((8,), dtype="int32")
rows = {layer}({vocabulary}, 16, name="items")(ids)
model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(rows)))
model.compile(optimizer={optimizer}, loss="mse")
inputs = np.zeros((32, 8), "int32")
"""


@pytest.fixture
def found(trace_source):
    """Return a function that says what is found in a model with a table and an optimizer."""

    def find(optimizer, *, vocabulary=20_000, layer="keras.layers.Embedding"):
        model = {"layer": layer, "vocabulary": vocabulary, "optimizer": optimizer}
        graph = trace_source(_MODEL.format(code=CODE, **model)).graph
        cluster = assumed_cluster(2)
        costs = roofline_by_place(graph, cluster)
        return told(step_rules.find_table_updated_whole, evidence_of(graph, costs, cluster=cluster))

    return find


@pytest.mark.parametrize("optimizer", ["Adam()", "AdamW()", "SGD(0.1, momentum=0.9)", "Ftrl()"])
def test_optimizers_with_averages_update_the_whole_table(found, optimizer):
    (finding,) = found(f"keras.optimizers.{optimizer}")
    # 32 · 8 of 20,000 rows.
    assert finding.finding.startswith("items/embeddings (1.28 MB): ")
    assert "needs at most 2 % of it and updates all of it" in finding.finding
    assert "another optimizer" in finding.action
    assert finding.where["layer"] == "items"
    assert finding.saving.basis == "simulated"


def test_clipping_makes_slices_dense_and_a_table_small_beside_a_batch_is_left_alone(found):
    (finding,) = found("keras.optimizers.SGD(0.1, global_clipnorm=1.0)")
    assert "tf.clip_by_global_norm" in finding.action
    # 256 of 2,000 rows.
    assert found("keras.optimizers.Adam()", vocabulary=2_000) == ()


@pytest.mark.parametrize("optimizer", ["keras.optimizers.SGD(0.1)", "LazyAdam()"])
def test_an_optimizer_that_updates_rows_is_left_alone(found, optimizer):
    assert found(optimizer, layer="RowEmbedding") == ()


def test_the_pages_code_is_adam_on_the_rows_that_are_read():
    import keras
    import tensorflow as tf

    made = {}
    exec(CODE, made)
    start = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    tables = [tf.Variable(start) for _ in range(2)]
    optimizers = [keras.optimizers.Adam(0.1), made["LazyAdam"](0.1)]
    for step in range(3):
        for table, optimizer in zip(tables, optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.range(10)) ** (step + 2))
            optimizer.apply([tape.gradient(loss, table)], [table])
    np.testing.assert_allclose(*(table.numpy() for table in tables), rtol=1e-5)
    before = tables[1].numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(tables[1], [3, 3]))
    optimizers[1].apply([tape.gradient(loss, tables[1])], [tables[1]])
    changed = np.flatnonzero((tables[1].numpy() != before).any(axis=1))
    assert changed.tolist() == [3]
