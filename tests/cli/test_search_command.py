"""`advisor search`, from files alone."""

import pytest
from cli_answers import error_of, told
from command_runs import run_here
from layer_models import model

from placement_advisor.graph.op_graph import OpGraph

GRAPH = "m.graph.json.gz"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = model("in1 -> a", "in2 -> b", "a b -> dot")
    heavy = [op._replace(flops=10**9, bytes_accessed=10**6) for op in drawn.ops]
    OpGraph(heavy, drawn.edges).save(GRAPH)
    return tmp_path


def searched(*words):
    return told(run_here("search", GRAPH, *words, "--json"), "search")


def test_the_best_placement_of_a_graph_is_told_in_whole_ns_and_words():
    content = searched("--devices", "3", "--effort", "1")
    assert (content["proven"], content["stopped_by"]) == (True, "proof")
    assert content["lower_bound_ns"] == content["step_ns"]
    devices = content["devices"]
    assert [device["name"] for device in devices] == ["worker:0", "worker:1", "worker:2"]
    assert sum(device["ops"] for device in devices) == content["ops"] == len(content["device_of"])
    # Towers run side by side: the step is shorter than its work.
    assert content["step_ns"] < sum(device["work_ns"] for device in devices)
    ran = run_here("search", GRAPH, "--effort", "1")
    assert (ran.code, ran.err) == (0, "")
    first, *_ = ran.out.splitlines()
    assert first.startswith("one step takes ")
    assert first.endswith("proved for assumed costs, no such placement is better")


def test_hardware_seed_and_effort_are_taken_and_told():
    content = searched("--hardware", "2xV100-NVLink", "--effort", "0.1")
    assert content["machine"] == "2xV100-NVLink"
    hosts = [device for device in content["devices"] if not device["name"].startswith("GPU")]
    assert all(device["ops"] for device in hosts)
    content = searched("--seed", "3", "--effort", "2")
    assert (content["seed"], content["effort_units"], content["time_limit_s"]) == (3, 2.0, None)
    limited = searched("--time-limit", "5")
    assert (limited["effort_units"], limited["time_limit_s"]) == (None, 5.0)


def test_what_cannot_be_searched_is_refused(here):
    error, *_ = error_of("search", GRAPH, "--devices", "2", "--hardware", "2xT4")
    assert "cannot be used together" in error
    assert "cannot be read" in error_of("search", "nowhere.json")[0]
    (here / "half.gz").write_bytes(b"\x1f\x8b\x08")
    assert "cut off before its end" in error_of("search", "half.gz")[0]
    OpGraph([], []).save("empty.graph.json.gz")
    assert "nothing in it can be placed" in error_of("search", "empty.graph.json.gz")[0]
