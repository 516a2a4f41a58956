"""What the user's own step computes, unplaced: run in the child that has traced it."""

import tensorflow as tf

from placement_advisor.measurement.verification import StepResults
from placement_advisor.tf.trace import bundle
from placement_advisor.tf.trace.tracer import labels, loaded_workload


def results(steps):
    """Run the step as a plain tf.function and return outputs and state.

    Runners take one step before they restore the initial state, and kernels with a random state
    of their own keep it: so does this.
    """
    workload = loaded_workload()
    function = tf.function(workload.step, autograph=workload.model is None)
    graph = function.get_concrete_function(workload.batches[0]).graph
    captured = {inner.op.name: outer for outer, inner in graph.captures}
    names = bundle.state_names(labels(graph, workload.model), captured, taken=())
    variables = {
        label: variable
        for name, label in names.items()
        for variable in graph.variables
        if variable.handle is captured[name]
    }
    initial = {name: tf.identity(variable) for name, variable in variables.items()}
    function(workload.batches[0])
    for name, variable in variables.items():
        variable.assign(initial[name])
    outputs = []
    for i in range(steps):
        answer = function(workload.batches[i % len(workload.batches)])
        outputs += [bundle.array(t) for t in tf.nest.flatten(answer) if t is not None]
    state = {name: bundle.array(v.read_value()) for name, v in variables.items()}
    before = {name: bundle.array(value) for name, value in initial.items()}
    return StepResults(outputs=tuple(outputs), before=before, state=state, given={})
