"""`placement_advisor.place`: ops run where they should, results are equal."""

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from pairs import pairs
from program_runs import run_program

from placement_advisor.errors import PlacementError
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.tf.place import real_devices

placed_live = RemoteModule("placed_live")

# TensorFlow's remapper is off for placed steps alone: fused kernels round differently.
TOLERANCE = 2e-5
# Grappler leaves out ops that compute nothing (identities, shapes that are known); variables and
# inputs arrive as arguments. What is left shows where ops are.
LEAST_SEEN_SHARE = 0.4
STEPS = ("tape_step", "looping_step", "looked_up", "shared_embedding", "gan")


# Placements are drawn with a seed; None is everything on the second device.
@pytest.mark.parametrize(("name", "seed"), pairs(STEPS, [1, None, 2]))
def test_a_placed_step_trains_the_same_variables_to_the_same_values(child, name, seed, tmp_path):
    found = child.call(placed_live.run_both_ways, name, seed, str(tmp_path))
    assert found["found"] == pytest.approx(found["expected"], rel=TOLERANCE)
    assert found["expected"][0] != pytest.approx(found["expected"][-1], rel=1e-3)
    assert max(found["differences"]) <= TOLERANCE
    assert found["same objects"]
    assert found["is tf.function"]
    seen = {op: device for op, device in found["ran on"].items() if op in found["plan"]}
    assert len(seen) >= LEAST_SEEN_SHARE * len(found["plan"])
    assert {op: found["plan"][op] for op in seen} == seen
    assert found["copies"] > 0
    if seed is None:
        assert found["variables on"] == ["CPU:1"]


def test_fit_trains_with_the_placed_step_and_the_other_methods_see_its_variables(child):
    found = child.call(placed_live.fit_placed)
    # XLA would ignore the devices.
    assert not found["placed with XLA"]
    assert found["placed"] == pytest.approx(found["own"], rel=TOLERANCE)
    for own, placed in zip(found["own weights"], found["placed weights"], strict=True):
        np.testing.assert_allclose(placed, own, atol=TOLERANCE)


@pytest.mark.parametrize("parallel", [False, True], ids=["place", "make_parallel"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_placement_file_holds_for_a_model_that_is_built_once_more(
    child, seed, parallel, tmp_path
):
    found = child.call(placed_live.built_again, seed, str(tmp_path), parallel)
    assert not found["same names"]
    assert found["read"] == found["written"]
    assert found["found"] == pytest.approx(found["expected"], rel=TOLERANCE, abs=TOLERANCE)
    if not parallel:
        seen = {op: device for op, device in found["ran on"].items() if op in found["plan"]}
        assert {op: found["plan"][op] for op in seen} == seen
        assert set(seen.values()) == {"CPU:0", "CPU:1"}


def test_x_may_be_several_tensors_in_one(child):
    assert max(child.call(placed_live.predictions_from_a_pair)) <= 1e-6


def test_a_model_that_was_placed_can_be_placed_otherwise(child):
    own, placed = child.call(placed_live.place_twice)
    assert placed == pytest.approx(own, rel=TOLERANCE)


REFUSED = {
    "no GPU": "PlacementError: the placement uses 'GPU:0'; this process has CPU:0, CPU:1*",
    "another step": "PlacementError: random-1: made for another graph: this one has no op*",
    "other shapes than the file's": "PlacementError: *this one: the batch was 16, and is 8 here",
    "no step": "ModelError: a int is no step*",
    "a listing of another build": "RuntimeError: this step has other names than the analysed one*"
    "placement_advisor.place()*",
    "a listing around a traced function": "*python_function*",
    "another shape at a call": "PlacementError: the placed step is for inputs of shape (16, 8), "
    "not (5, 8)*",
    "another structure at a call": "PlacementError: the placed step takes other arguments: *",
    "the function that was traced before": "*Error: *",
}


def test_what_does_not_fit_is_refused_with_its_reason(child, tmp_path):
    said = child.call(placed_live.refusals, str(tmp_path))
    assert said.keys() == REFUSED.keys()
    others = {what: text for what, text in said.items() if not fnmatchcase(text, REFUSED[what])}
    assert others == {}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["tape_step", "shared_embedding", "gan"])
def test_a_step_traced_under_the_listing_asks_for_the_devices_of_the_placement(child, name, seed):
    found = child.call(placed_live.placed_by_listing, name, seed)
    asked, wanted = found["asked"], found["wanted"]
    assert {op for op in wanted if "gradient_tape/" in op} or name == "tape_step"
    assert {op: asked.get(op) for op in wanted} == wanted
    assert np.isfinite(found["loss"])


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "place.md"
_FILE = re.compile(r"<!-- (\w+\.py) -->\n\n```python\n(.*?)```", re.DOTALL)
_ADVISOR = "from placement_advisor.cli.app import main; main()"
_LIMIT_S = 600


@pytest.mark.slow
def test_the_example_of_the_page_trains_by_a_placement(tmp_path):
    files = dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    analyze = [sys.executable, "-c", _ADVISOR, "analyze", "pair.py", "--quick", "-q"]
    output = tmp_path / "advisor-out" / "pair"
    for words in ([*analyze, "-o", str(output)], [sys.executable, "train.py"]):
        done = run_program(*words, cwd=tmp_path, timeout=_LIMIT_S)
        assert done.returncode == 0, done.stderr
    losses = [float(line) for line in done.stdout.splitlines()[:8]]
    assert losses[-1] < losses[0]


TWO_GPUS = ("CPU:0", "GPU:0", "GPU:1")
TWO_CPUS = ("CPU:0", "CPU:1")
TWO_WORKERS = ("worker:0", "worker:1")


@pytest.mark.parametrize(
    ("names", "here", "chosen", "found"),
    [
        (("GPU:1", "CPU:0"), TWO_GPUS, {}, ("GPU:1", "CPU:0")),
        # Stand-ins are GPUs in order if there are enough.
        (TWO_WORKERS, TWO_GPUS, {}, ("GPU:0", "GPU:1")),
        (TWO_WORKERS, TWO_CPUS, {}, ("CPU:0", "CPU:1")),
        (TWO_WORKERS, (*TWO_CPUS, "GPU:0"), {}, ("CPU:0", "CPU:1")),
        (TWO_WORKERS, TWO_GPUS, {"worker:0": "/GPU:1"}, ("GPU:1", "GPU:0")),
    ],
)
def test_devices_stand_for_themselves_or_are_chosen_or_those_left_in_order(
    names, here, chosen, found
):
    assert real_devices(names, here, chosen) == dict(zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("names", "chosen", "message"),
    [
        (("GPU:2",), {}, "the placement uses 'GPU:2'; this process has CPU:0, GPU:0, GPU:1"),
        (("a", "b", "c"), {}, "the placement's a, b, c need 3 GPUs or CPUs; this process has"),
        (("a",), {"a": "TPU:0"}, "devices: 'a' is to be 'TPU:0'; this process has"),
        (("a",), {"b": "GPU:0"}, "devices: the placement has no 'b'; it has a"),
    ],
)
def test_what_is_not_here_is_named(names, chosen, message):
    with pytest.raises(PlacementError) as caught:
        real_devices(names, TWO_GPUS, chosen)
    assert caught.value.message.startswith(message)


def test_where_there_are_too_few_cpus_the_line_that_makes_them_is_said():
    line = "tf.config.set_logical_device_configuration("
    for names, count in ((("worker:0", "worker:1"), 2), (("CPU:2",), 3), (("CPU:0", "a"), 2)):
        with pytest.raises(PlacementError) as caught:
            real_devices(names, ("CPU:0",), {})
        assert line in str(caught.value.hint)
        assert f"[tf.config.LogicalDeviceConfiguration()] * {count})" in str(caught.value.hint)
    with pytest.raises(PlacementError) as caught:
        real_devices(("GPU:1",), TWO_CPUS, {})
    assert line not in str(caught.value.hint)
