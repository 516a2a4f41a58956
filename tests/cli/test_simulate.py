"""`advisor simulate`, from files alone."""

import pytest
from cli_answers import apart, refusal, told
from command_runs import LAUNCH
from layer_models import model

from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement

GRAPH = OpGraph(
    [
        op._replace(device_kinds=frozenset({"CPU", "GPU"}), flops=10**9, bytes_accessed=10**6)
        for op in model("in1 -> a", "in2 -> b", "a b -> dot").ops
    ],
    model("in1 -> a", "in2 -> b", "a b -> dot").edges,
)
WORDS = ("m.graph.json.gz", "--placement", "towers.json")


def save_placement(path, *devices):
    """Write a placement with layer b on the last of the devices and the rest on the first."""
    Placement(
        label="towers",
        family="towers",
        device_of={op.name: devices[-1 if op.name == "b" else 0] for op in GRAPH.placed_ops},
        rationale="by hand",
    ).save(path, GRAPH, devices)


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    GRAPH.save(folder / "m.graph.json.gz")
    save_placement(folder / "towers.json", "worker:0", "worker:1")
    monkeypatch.chdir(folder)
    return folder


def simulated(advisor, *words):
    return told(advisor("simulate", *WORDS, "--json", *words), "simulation")


def test_a_step_is_simulated_without_tensorflow(here):
    code = (
        f"import sys; sys.modules['tensorflow'] = None; sys.modules['keras'] = None\n"
        f"try:\n    {LAUNCH.replace(';', chr(10) + '   ')}\n"
        "finally:\n    print(sorted(set(sys.modules) & {'matplotlib', 'networkx'}))"
    )
    ran = apart("simulate", *WORDS, launch=code)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(
        f"graph        m.graph.json.gz, fingerprint {GRAPH.fingerprint}\n"
        "placement    towers.json: towers\n"
        "machine      CPU workers, one core each: 2 devices, every figure assumed\n"
        "costs        assumed: "
    )
    assert ran.out.endswith("\n[]\n")


def test_the_devices_of_the_placement_are_taken_in_order_unless_their_names_are_known(
    advisor, here
):
    content = simulated(advisor, "--hardware", "3xV100-NVLink")
    assert content["renamed_devices"] == {"worker:0": "GPU:0", "worker:1": "GPU:1"}
    computes = {device["name"]: device["compute_ns"] > 0 for device in content["devices"]}
    # More devices than the placement has stay idle.
    assert computes == {"GPU:0": True, "GPU:1": True, "GPU:2": False, "CPU:0": False}
    ran = advisor("simulate", *WORDS, "--hardware", "3xV100-NVLink")
    assert "its devices are taken in order: worker:0 as GPU:0, worker:1 as GPU:1\n" in ran.out
    save_placement(here / "towers.json", "GPU:1", "GPU:0")
    content = simulated(advisor, "--hardware", "2xV100-NVLink")
    assert content["renamed_devices"] == {}
    times_ns = [device["compute_ns"] for device in content["devices"]]
    # Layers a and dot on GPU:1, b on GPU:0.
    assert times_ns[1] == 2 * times_ns[0]


def test_faster_devices_and_matrix_units_make_the_step_shorter(advisor, here):
    steps_ns = [simulated(advisor)["step_ns"]] + [
        simulated(advisor, "--hardware", f"2x{card}-PCIe3")["step_ns"] for card in ("T4", "A100")
    ]
    assert steps_ns == sorted(steps_ns, reverse=True)
    assert len(set(steps_ns)) == 3


def test_a_cluster_file_gives_its_own_figures(advisor, here):
    (here / "mine.toml").write_text(
        """
[[devices]]
name = "worker:0"
kind = "CPU"
peak_flops_per_s = 1e12
memory_bandwidth_bytes_per_s = 1e12

[[devices]]
name = "worker:1"
kind = "CPU"
peak_flops_per_s = 1e10
memory_bandwidth_bytes_per_s = 1e12

[[links]]
between = ["worker:0", "worker:1"]
latency_ns = 1000
bandwidth_bytes_per_s = 1e9
"""
    )
    content = simulated(advisor, "--hardware", "mine.toml")
    # b on the slow device: 1e9 flop at 1e10 flop/s; a and dot at 1e12.
    assert [device["compute_ns"] for device in content["devices"]] == [2 * 10**6, 10**8]
    # What b reads and what it makes cross: 8 bytes at 1e9 per second each, beside the latency.
    assert content["step_ns"] == (1_000 + 8) + 10**8 + (1_000 + 8) + 10**6


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nowhere.gz", "--placement", "towers.json"), "error: nowhere.gz: "),
        (("m.graph.json.gz",), "--placement"),
        (("m.graph.json.gz", "--placement", "nowhere.json"), "error: nowhere.json: "),
        (
            ("m.graph.json.gz", "--placement", "m.graph.json.gz"),
            "error: m.graph.json.gz: not valid JSON: expected value",
        ),
        ((*WORDS, "--hardware", "2xAbacus"), "error: hardware '2xAbacus': unknown device"),
        (
            (*WORDS, "--hardware", "V100"),
            "towers.json: written for 2 devices, there are 1: GPU:0\nadvisor: hint: name hardware",
        ),
        (("other.gz", "--placement", "towers.json"), "towers.json: written for another graph than"),
        ((*WORDS, "--hardware", "none.toml"), "error: none.toml: cannot be read"),
        ((*WORDS, "--hardware", "bare.toml"), "bare.toml: device 'a' has no peak_flops_per_s"),
    ],
)
def test_what_a_user_can_get_wrong_is_named(words, problem, advisor, here):
    model("in1 -> a").save(here / "other.gz")
    (here / "bare.toml").write_text('[[devices]]\nname = "a"\nkind = "CPU"\n')
    before = sorted(here.iterdir())
    assert problem in refusal(advisor("simulate", *words))
    assert sorted(here.iterdir()) == before
