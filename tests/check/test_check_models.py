"""Models of a project: traced, compiled ahead, their batch split, measured."""

from pathlib import Path

import pytest

from placement_advisor.candidates import references
from placement_advisor.check.check_models import CheckOptions, _compile, check_models
from placement_advisor.check.lock_file import read_config
from placement_advisor.check.lock_record import Part
from placement_advisor.check.problem_codes import ProblemCode, Status
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware
from placement_advisor.testbed.benchmark import SilentProgress


def checked_with(options, root, hardware, **model):
    """Check a project of one model with these settings."""
    head = ["[tool.advisor]", f'hardware = "{hardware}"', "[[tool.advisor.models]]"]
    lines = [*head, *(f'{name} = "{value}"' for name, value in model.items())]
    (root / "pyproject.toml").write_text("\n".join(lines))
    config = read_config(root / "pyproject.toml")
    (result,) = check_models(config, options, SilentProgress()).results
    return result


@pytest.mark.parametrize("hardware", ["V100", "2xV100-NVLink", "2x(2xT4)-Ethernet100"])
def test_what_is_compiled_ahead_is_placed_and_simulated_on_any_hardware(hardware):
    _compile(read_hardware(hardware), {"auto"})


@pytest.mark.parametrize(
    ("hardware", "codes"),
    [
        ("2xV100-NVLink", set()),
        ("GTX1080Ti+GTX1080", {ProblemCode.PLACEMENT_CHANGED, ProblemCode.SLOWER}),
    ],
)
def test_a_whole_step_may_move_to_another_device_if_that_is_as_good(tmp_path, hardware, codes):
    kinds = frozenset({"CPU", "GPU"})
    product = Op(name="product", kind="MatMul", layer="dense", flops=10**11, device_kinds=kinds)
    graph = OpGraph([product], [])
    graph.save(tmp_path / "step.graph.json.gz")
    files = {"path": "step.py", "graph": "step.graph.json.gz", "placement": "placement.json"}
    devices = read_hardware(hardware).device_names()
    for device, update in ((devices[0], True), (devices[1], False)):
        placement = references.on_device(graph, device)
        placement.save(tmp_path / "placement.json", graph, devices)
        options = CheckOptions(graphs_only=True, update=update)
        result = checked_with(options, tmp_path, hardware, **files)
    assert {code for problem in result.problems for code in problem.codes} == codes, result
    for problem in result.problems:
        assert problem.place.file == "placement.json"
        assert '"dense":' in (problem.source or "")


MODEL = """\
import tensorflow as tf

BATCH, WIDTH = 64, 64
tf.keras.utils.set_random_seed(1)
dense = tf.keras.layers.Dense
layers = [dense(WIDTH, activation="relu", name="hidden"), dense(1, name="score")]
model = tf.keras.Sequential([tf.keras.layers.Input([32]), *layers])
model.compile(optimizer="sgd", loss="mse")
dataset = tf.data.Dataset.from_tensors((tf.zeros([BATCH, 32]), tf.zeros([BATCH, 1])))
"""


def checked(root, placement, hardware="2xT4", model=MODEL, **options):
    (root / "model.py").write_text(model)
    settings = {"path": "model.py", "mode": "train", "placement": placement}
    return checked_with(CheckOptions(**options), root, hardware, **settings)


@pytest.mark.parametrize("placement", ["batch", "mirrored"])
def test_a_split_of_the_batch_is_locked_and_checked(tmp_path, placement):
    locked = checked(tmp_path, placement, update=True)
    assert locked.after is not None, locked.error
    assert {"replica_0/hidden", "replica_1/hidden"} <= {
        layer.replace("sequential/", "") for layer in locked.after.layers
    }
    same = checked(tmp_path, placement, measure=True)
    assert same.status is Status.INCONCLUSIVE, same.problems
    (note,) = same.notes
    assert note == "not measured: advisor analyze runs splits of the batch, a check does not"
    worse = checked(tmp_path, placement, model=MODEL.replace("64, 64", "64, 65_536"))
    assert worse.status is Status.FAILED
    assert ProblemCode.SLOWER in {code for problem in worse.problems for code in problem.codes}


@pytest.mark.parametrize(
    ("placement", "hardware", "error"),
    [
        ("mirrored", "3xT4", "cannot be shared evenly by 3"),
        ("batch", "T4", "the hardware has one"),
        ("batch-towers", "3xT4", "over pairs of devices, and the hardware has one"),
    ],
)
def test_a_batch_that_cannot_be_split_so_is_an_error(tmp_path, placement, hardware, error):
    result = checked(tmp_path, placement, hardware)
    assert result.status is Status.COULD_NOT_RUN
    assert error in (result.error or "")
    assert result.hint


def test_a_split_among_pairs_has_the_towers_of_each_replica_on_its_pair(tmp_path, two_towers):
    at = ("batch-towers", "4xT4", two_towers.read_text())
    locked = checked(tmp_path, *at, update=True)
    assert locked.after is not None, locked.error
    where = {name: layer.devices.get(Part.FORWARD) for name, layer in locked.after.layers.items()}
    towers = [
        {where[f"replica_{replica}/{side}_hidden"] for side in ("left", "right")}
        for replica in (0, 1)
    ]
    assert towers == [{("GPU:0",), ("GPU:1",)}, {("GPU:2",), ("GPU:3",)}]
    same = checked(tmp_path, *at)
    assert (same.status, same.notes) == (Status.PASSED, ())
    # Where there are no towers any more it does not fit.
    (problem,) = checked(tmp_path, *at[:2], MODEL).problems
    assert problem.code is ProblemCode.DOES_NOT_FIT
    assert problem.what.startswith("batch-towers does not apply to this model: ")
    assert "replica_0/left" in problem.what


TWO_TOWER = Path(__file__).parents[1] / "tf" / "models" / "two_tower.py"


@pytest.mark.slow
def test_a_placement_that_was_replaced_by_a_worse_one_is_measured_to_be_slower(tmp_path):
    at = ("2xV100-NVLink", TWO_TOWER.read_text())
    checked(tmp_path, "single", *at, update=True)
    same = checked(tmp_path, "single", *at, measure=True)
    assert same.status in (Status.PASSED, Status.INCONCLUSIVE)
    assert "against the locked placement" in same.notes[-1]
    worse = checked(tmp_path, "alternating", *at, measure=True)
    codes = {code for problem in worse.problems for code in problem.codes}
    assert ProblemCode.MEASURED_SLOWER in codes, worse.notes
