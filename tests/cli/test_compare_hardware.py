"""`advisor compare-hardware`: a small model on machines by name, and what it refuses."""

from functools import partial
from pathlib import Path

import pytest
from cli_answers import refusal, told

from placement_advisor.analysis import compare_hardware, predictions
from placement_advisor.analysis.options import AnalyzeOptions
from placement_advisor.solvers.effort import Effort

BRIEF = ("--effort", "0.1")
SAMPLES = sorted((Path(__file__).parents[2] / "sample_models").glob("*.py"))
MODEL = """
import keras
import tensorflow as tf

model = keras.Sequential([keras.Input((64,), 6), keras.layers.Dense(512), keras.layers.Dense(8)])
model.compile("sgd", "mse")
dataset = tf.data.Dataset.from_tensors((tf.zeros((6, 64)), tf.zeros((6, 8))))
"""


@pytest.fixture(autouse=True)
def _brief_search(monkeypatch):
    """Search as briefly as `advisor analyze` does with ``BRIEF``."""
    brief = partial(AnalyzeOptions, effort=Effort(units=float(BRIEF[-1])))
    monkeypatch.setattr(compare_hardware, "AnalyzeOptions", brief)


@pytest.fixture
def model(write_model):
    return str(write_model(MODEL))


def test_each_machine_is_simulated_on_ever_more_of_its_devices(advisor, model, tmp_path):
    picture = tmp_path / "scaling.png"
    options = ("--price", "3", "--price", "0.5", "--png", str(picture), "--json", "-q")
    ran = advisor("compare-hardware", model, "4xV100-NVLink", "T4", *options)
    nvlink, t4 = told(ran, "scaling")["machines"]
    assert t4["steps"] == []
    assert [row["devices"] for row in t4["best"]] == [1]
    joint = ("mirrored", "mirrored-one-by-one", "mirrored-by-copies")
    apart = ("batch", "variables-on-host", "variables-spread")
    found = {(step["devices"], step["family"], step["scaling"]) for step in nvlink["steps"]}
    assert found == {(count, family, "weak") for count in (2, 4) for family in (*apart, *joint)}
    of_towers, *others = nvlink["notes"]
    assert of_towers == "towers: no layer joins two independent towers: every layer feeds the next"
    assert others[0].startswith("pipeline: any cut costs more in copies")
    one, *rows = nvlink["best"]
    assert (one["scaling"], one["speedup"]) == (None, None)
    counts = [(row["scaling"], row["devices"]) for row in rows]
    assert counts[:2] == [("weak", 2), ("weak", 4)]
    assert counts[2:] in ([], [("strong", 2), ("strong", 4)])
    for row in rows:
        assert row["samples"] == 6 * (row["devices"] if row["scaling"] == "weak" else 1)
        assert row["efficiency"] is None or 0 < row["efficiency"] <= 1
        ratio = row["samples_per_s"] / row["one_device_samples_per_s"]
        assert row["speedup"]["simulated"] == pytest.approx(ratio)
        assert row["speedup"]["low"] <= row["speedup"]["simulated"] <= row["speedup"]["high"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [("T4",), ("T4", "--batch-size", "1")])
def test_of_one_device_alone_it_says_what_fits(advisor, write_model, words):
    path = write_model(MODEL.replace("Input((64,), 6)", "Input((64,))"))
    ran = advisor("compare-hardware", str(path), *words, "--json", "-q")
    (machine,) = told(ran, "scaling")["machines"]
    (held,) = machine["memory"]
    assert (held["family"], held["devices"]) == ("single", 1)
    # A sample has 512 numbers of 4 bytes at least.
    assert 1_000_000 < held["largest_batch"] < machine["device_memory_bytes"] / 2_048


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("2xV100", "--price", "1", "--price", "2"), "--price: 2 prices for 1 machine\n"),
        (("2xNothing",), "unknown device"),
        (("one.toml",), "one.toml: device 'GPU:0' has no peak_flops_per_s"),
    ],
)
def test_what_says_nothing_is_refused_at_once(advisor, model, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text('[[devices]]\nname = "GPU:0"\nkind = "GPU"\n')
    assert said in refusal(advisor("compare-hardware", model, *given, "-q"))


def test_hosts_of_a_hierarchy_are_doubled_after_the_devices_of_one(advisor, model):
    text = "2x(2x(2xV100-NVLink)-2xInfiniBand200)-Ethernet100"
    ran = advisor("compare-hardware", model, text, "--json", "-q")
    (machine,) = told(ran, "scaling")["machines"]
    steps = [step for step in machine["steps"] if step["scaling"] == "weak"]
    assert [step["devices"] for step in steps if step["family"] == "batch"] == [2, 4, 8]
    step_ns = [step["step_ns"] for step in steps if step["family"] == "mirrored"]
    assert step_ns == sorted(step_ns)
    # Each level costs more than the one below.
    assert step_ns[2] - step_ns[1] > step_ns[1] - step_ns[0] > 0
    assert (machine["verdict"], machine["answer"]) == (None, None)
    assert "8 devices: mirrored-by-copies is of one host" in machine["notes"]
    note = "8 devices: a batch of 6 has less than one sample for each of 8 devices"
    assert note in machine["notes"]


# Four matrices of 16 MB: far more to exchange than to compute with.
TOWERS = """
import keras
import tensorflow as tf


def tower(side):
    x = keras.Input((2048,), 64, name=side)
    hidden = keras.layers.Dense(2048, name=f"{side}_1")(x)
    hidden = keras.layers.Dense(2048, name=f"{side}_2")(hidden)
    return x, keras.layers.Dense(16, name=f"{side}_3")(hidden)


inputs, ends = zip(tower("left"), tower("right"))
model = keras.Model(inputs, keras.layers.Dense(1, name="head")(keras.layers.concatenate(ends)))
model.compile("sgd", "mse")
x = tf.zeros((64, 2048))
dataset = tf.data.Dataset.from_tensors(((x, x), tf.zeros((64, 1))))
"""


def test_towers_within_hosts_win_where_variables_are_large(advisor, write_model):
    machines = ("2xT4", "4x(2xT4)-Ethernet10")
    ran = advisor("compare-hardware", str(write_model(TOWERS)), *machines, "--json", "-q")
    host, hosts = told(ran, "scaling")["machines"]
    (row,) = (row for row in host["best"] if row["scaling"] == "strong")
    assert host["knee"]["strong"]["devices"] == 2
    assert host["notes"] == []
    weak, strong = {}, {}
    for step in hosts["steps"]:
        (weak if step["scaling"] == "weak" else strong)[step["family"], step["devices"]] = step
    for family in ("batch", "variables-on-host", "variables-spread", "mirrored"):
        assert strong["towers", 2]["step_ns"] < 0.7 * strong[family, 2]["step_ns"], family
    # The search of `advisor analyze` has towers to begin with.
    assert row["step_ns"] <= strong["towers", 2]["step_ns"]
    assert [strong["towers", devices]["samples"] for devices in (2, 4, 8)] == [64, 64, 64]
    assert [weak["towers", devices]["samples"] for devices in (2, 4, 8)] == [128, 256, 512]
    # Twice the samples take more, but not twice as long: matrices are read once.
    once, twice = strong["towers", 2]["step_ns"], weak["towers", 2]["step_ns"]
    assert once < twice < 2 * once
    # One device that takes as many samples is what they are held against.
    assert [one["samples"] for one in hosts["one_device"]] == [64, 128]
    (two,) = (r for r in hosts["best"] if (r["scaling"], r["devices"]) == ("weak", 2))
    assert two["one_device_samples_per_s"] == hosts["one_device"][1]["samples_per_s"]
    # The gradients of all four leave each host, so that one host alone is faster.
    assert strong["towers", 4]["step_ns"] > 4 * 2048**2 * 4 / 1.25e9 * 1e9
    used = [(r["devices"], r["devices_used"]) for r in hosts["best"] if r["scaling"] == "strong"]
    assert used == [(2, 2), (4, 2), (8, 2)]
    assert hosts["knee"]["strong"]["devices"] == 2


def both_answers(advisor, model, hardware, folder, *options):
    """Yield what both commands say of a model on each machine, which is one verdict."""
    compared = advisor("compare-hardware", str(model), *hardware, "--json", "-q")
    machines = told(compared, "scaling")["machines"]
    for name, machine in zip(hardware, machines, strict=True):
        where = ("--hardware", name, "--json", "-q", "-o", str(folder / name))
        analysis = told(advisor("analyze", str(model), *where, *options), "analysis")
        assert machine["verdict"] == analysis["recommendation"]["verdict"]
        assert machine["answer"] == analysis["recommendation"]["answer"]
        yield machine, analysis


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_verdict_is_that_of_analyze_for_every_sample(advisor, tmp_path, sample):
    for machine, _ in both_answers(advisor, sample, ("4xT4", "2xH100-NVLink4"), tmp_path, *BRIEF):
        for row in machine["best"]:
            assert row["excess"] != "unexplained"
            assert (row["excess"] == "launches") <= (row["efficiency"] is None)
            assert row["efficiency"] is None or row["efficiency"] <= 1
        per_s = [row["samples_per_s"] for row in machine["best"] if row["scaling"] == "strong"]
        assert per_s == sorted(per_s)


def test_the_verdict_is_that_of_analyze_on_a_machine(advisor, write_model, monkeypatch, tmp_path):
    # Both search as hard as for users who ask for no effort.
    monkeypatch.setattr(compare_hardware, "AnalyzeOptions", AnalyzeOptions)
    ((machine, analysis),) = both_answers(advisor, write_model(TOWERS), ["2xT4"], tmp_path)
    recommended = analysis["recommendation"]
    row = machine["best"][-1]
    assert (row["scaling"], row["family"]) == ("strong", recommended["candidate"])
    (split,) = (c for c in analysis["candidates"] if c["name"] == recommended["candidate"])
    assert row["step_ns"] == split["predicted"]["step_ns"]
    ratio = split["predicted"]["ratio_to_single"]
    assert row["speedup"] == {
        "simulated": 1 / ratio["ratio"], "low": 1 / ratio["high"], "high": 1 / ratio["low"],
    }  # fmt: skip


# Much to compute with few variables, one layer after the other.
CHAIN = """
import keras
import tensorflow as tf

layers = [keras.layers.Conv2D(128, 3) for _ in range(8)]
model = keras.Sequential([keras.Input((56, 56, 3), 64), *layers, keras.layers.GlobalMaxPool2D()])
model.compile("sgd", "mse")
dataset = tf.data.Dataset.from_tensors((tf.zeros((64, 56, 56, 3)), tf.zeros((64, 128))))
"""


def test_nothing_is_searched_for_that_could_not_win(advisor, write_model, tmp_path, monkeypatch):
    path = write_model(CHAIN)
    ((machine, analysis),) = both_answers(advisor, path, ["2xV100-NVLink"], tmp_path, *BRIEF)
    monkeypatch.delattr(predictions.searched, "propose_searched")
    ran = advisor("compare-hardware", str(path), "2xV100-NVLink", "--json", "-q")
    assert told(ran, "scaling")["machines"] == [machine]
    (split,) = (row for row in machine["best"] if row["scaling"] == "strong")
    assert split["step_ns"] <= analysis["bound"]["split_ns"]
