"""Scripts drawn at random are captured, and their scopes make a split of their own."""

import pytest
from split_scripts import split_script

from placement_advisor.analysis.target_costs import read_target_hardware
from placement_advisor.candidates.references import as_written
from placement_advisor.graph.op import Role
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource


def is_split(child, folder, seed):
    """Check what is seen of a script."""
    script = split_script(seed)
    path = folder / "train.py"
    path.write_text(script.text)
    said = child.call(tracer.load_workload, ModelSource(path=str(path)))
    assert isinstance(said, str), f"seed {seed}: {said}\n{script.text}"
    assert said.startswith("captured ")
    traced = child.call(tracer.trace_workload, str(path), None)
    assert isinstance(traced, Traced), f"seed {seed}: {traced}"
    assert traced.batch_size == script.batch
    assert traced.mode == "train"

    cluster = read_target_hardware("2xV100-NVLink", None).cluster
    own = as_written(traced.graph, traced.requested_device_of, cluster)
    first, second = cluster.device_names()
    forward, backward, variables = (
        [own.device_of[op.name] for op in traced.graph.ops if op.role is role]
        for role in (Role.FORWARD, Role.BACKWARD, Role.VARIABLE)
    )
    assert set(forward) == set(variables) == {first, second}
    assert (second in backward) is script.is_apart


@pytest.mark.parametrize("seed", [1, 3, 5], ids=lambda seed: split_script(seed).style)
def test_a_script_of_each_style_has_a_split_of_its_own(child, tmp_path, seed):
    is_split(child, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_scripts_drawn_at_random_have_a_split_of_their_own(child, tmp_path, seed):
    is_split(child, tmp_path, seed)
