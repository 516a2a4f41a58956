"""The heart of it: wherever the ops of a step stand, it computes what the user's step computes."""

from contextlib import closing

import pytest
from pairs import pairs
from real_runs import needs_workers
from traced_models import STEPS, at_random, crossing_tensors, largest_difference

from placement_advisor.candidates.references import (
    propose_alternating,
    propose_alternating_ops,
    propose_single,
)
from placement_advisor.cost.table import CostTable
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.verification import StepResults
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.calls import runner

# The user's step runs with TensorFlow's fused kernels, a placed one without: they round
# differently, in the seventh digit of a step. A lost update or a stale read shows in the first.
TOLERANCE = 1e-5
# Placements run the very same kernels; threads may add up in another order.
TOLERANCE_BETWEEN_PLACEMENTS = 1e-6

MODELS = (
    "two_tower",
    "scoped_step",
    "looping_step",
    "norm_dropout",
    "recurrent",
    "nested",
    "tf_gradients_step",
    "function_on_devices",
)


@pytest.mark.parametrize(
    ("name", "kind"),
    pairs(
        MODELS, [pytest.param(TestbedKind.WORKERS, marks=needs_workers), TestbedKind.LOGICAL_CPUS]
    ),
)
def test_any_placement_computes_what_the_users_own_step_computes(traced, name, kind, tmp_path):
    _check_placements(traced(name, run=True), kind, tmp_path)


STEPS_OF_THEIR_OWN = {
    "side effects of a function that is called twice, and of a loose control dependency": """
weight, count, log = tf.Variable(tf.ones((3, 3))), tf.Variable(0), tf.Variable("")
inputs = tf.ones((4, 3))

@tf.function
def inner(x):
    count.assign_add(1)
    log.assign(tf.strings.as_string(count))
    return x @ weight, count.read_value()

@tf.function
def step(x):
    y, first = inner(x)
    z, second = inner(y)
    weight.assign_sub(0.01 * z[:3])
    with tf.control_dependencies([count.assign_add(5)]):
        five = tf.constant(5)
        after = tf.constant(1) + five
    return {"sum": tf.reduce_sum(z), "counts": [first, second, count.read_value()], "after": after}
""",
    "loops and conditionals that read variables, and a loop that writes one": """
weight = tf.Variable(tf.reshape(tf.range(9.0), (3, 3)) / 10)
table, total, shift = tf.Variable(tf.ones((5, 3))), tf.Variable(0.0), tf.Variable(0.0)
inputs = tf.ones((4, 3))

@tf.function
def step(x):
    shift.assign_add(0.1)
    for i in tf.range(4):
        x = tf.tanh(x @ weight + shift) + tf.gather(table, i)
        for j in tf.range(2):
            x += table[j] * tf.cast(tf.shape(weight)[0], tf.float32)
        total.assign_add(tf.reduce_sum(x))
    x = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x @ weight, lambda: x - weight[0])
    branch = 1 + tf.cast(x[0, 0] > 1e9, tf.int32)
    y = tf.switch_case(branch, [lambda: x, lambda: x @ weight + tf.gather(table, 1), lambda: x + 1])
    shift.assign_add(0.2)
    weight.assign_sub(0.01 * tf.ones((3, 3)))
    table.scatter_nd_add([[1]], [[0.1, 0.2, 0.3]])
    return {"y": y, "total": total.read_value()}
""",
    "a table within a function and one within a loop": """
def table(keys, values):
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
by_number = table(tf.constant([0, 1, 2], tf.int64), tf.constant([5, 6, 7], tf.int64))
by_text = table(tf.constant(["5", "6"]), tf.constant([1, 2], tf.int64))
inputs = tf.constant([0, 1, 2, 3], tf.int64)

@tf.function
def find(numbers):
    return by_number.lookup(numbers)

@tf.function
def step(numbers):
    found = find(numbers)
    return found, tf.map_fn(lambda n: by_text.lookup(tf.strings.as_string(n)), found)
""",
    "random numbers of every sort": """
weight = tf.Variable(tf.zeros((3, 3)))
generator = tf.random.Generator.from_seed(3)
inputs = tf.ones((4, 3))

@tf.function
def step(x):
    noise = tf.random.normal((3, 3)) + tf.random.stateless_normal((3, 3), [1, 2])
    weight.assign_add(noise + generator.normal((3, 3)))
    return x @ weight
""",
    "inputs of every type, one of them unused": """
inputs = {
    "truth": np.array([True, False]), "byte": np.array([1, 2], np.uint8),
    "text": np.array(["a", "bcd"]), "one_text": "ef", "half": tf.constant([1, 2], tf.bfloat16),
    "complex": np.array([1j, 2]), "number": np.float32(3), "unused": np.array([1.0]),
}

@tf.function
def step(given):
    return {
        "truth": tf.logical_not(given["truth"]), "byte": given["byte"] + tf.constant(1, tf.uint8),
        "text": tf.strings.join([given["text"], given["one_text"]]), "same": given["byte"],
        "half": given["half"] ** 2, "complex": given["complex"] ** 2, "number": -given["number"],
    }
""",
    "a variable that grows": """
history = tf.Variable([0.0], shape=tf.TensorShape(None))
inputs = tf.ones((3,))

@tf.function
def step(x):
    history.assign(tf.concat([tf.reshape(history, [-1]), x], 0))
    return tf.size(history)
""",
    "an assertion, a message and no output": """
weight = tf.Variable(tf.zeros((3,)))
inputs = tf.ones((3,))

@tf.function
def step(x):
    tf.debugging.assert_greater(tf.reduce_sum(x), 0.0)
    tf.print("sum", tf.reduce_sum(x))
    weight.assign_add(x)
""",
}


@pytest.mark.parametrize("what", STEPS_OF_THEIR_OWN)
def test_a_placed_step_keeps(trace_source, what, tmp_path):
    model = trace_source(STEPS_OF_THEIR_OWN[what], run=True)
    _check_placements(model, TestbedKind.LOGICAL_CPUS, tmp_path)


def _check_placements(model, kind, scratch):
    plan = plan_testbed(kind, 2)
    if plan.not_run:
        pytest.skip(plan.not_run)
    with closing(Testbed(plan, scratch=scratch)) as testbed:
        testbed.add_program(STEP, model.bundle, model.graph)
        testbed.start()
        on_one_device = None
        for placement in _placements(model, tuple(device.name for device in plan.devices)):
            results = _check_placement(testbed, model, placement)
            on_one_device = on_one_device or results
            assert largest_difference(results, on_one_device) <= TOLERANCE_BETWEEN_PLACEMENTS


def _check_placement(testbed, model, placement):
    prepared = testbed.prepare(placement.label, placement.device_of, STEP)
    assert isinstance(prepared, Prepared), prepared
    assert prepared.moved_ops == ()
    crossed = [(c.producer, c.port, c.source, c.target) for c in prepared.crossings]
    assert len(crossed) == len(set(crossed))
    assert set(crossed) == crossing_tensors(model.graph, placement)
    results = testbed.call(runner.results, placement.label, STEPS)
    assert isinstance(results, StepResults), results
    assert set(results.state) == set(model.reference.state)
    assert largest_difference(results, model.reference) <= TOLERANCE
    return results


def _placements(model, devices):
    """Return all on one device, the device changing at every layer and op, and two at random."""
    places = tuple(Device(name=name, kind="CPU") for name in devices)
    cluster = Cluster(devices=places, links=())
    no_costs = CostTable(costs={}).everywhere(cluster)
    proposals = (propose_single, propose_alternating, propose_alternating_ops)
    proposed = [propose(model.graph, no_costs, cluster) for propose in proposals]
    placements = [found for found in proposed if isinstance(found, Placement)]
    placements += [at_random(model.graph, devices, seed) for seed in (1, 2)]
    for placement in placements:
        placement.check(model.graph, devices)
    return placements
