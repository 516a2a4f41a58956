"""`advisor profile`: what it prints, in each format, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from cli_answers import told
from recorded_profiles import event, gpu, host, write

from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.profile.formats import FileFormat
from placement_advisor.profile.xplane import Line
from placement_advisor.results.steps import Profile

REAL = Path(__file__).parents[3] / "shared" / "reference" / "traces" / "gpu-multi-worker"


def recorded(folder, kernel="gemm", run="run"):
    """Write a profile of two steps on two GPUs, between which 4 MB go each time."""

    def at(name, start_us, time_us, **stats):
        return event(name, start_us * 1_000, (start_us + time_us) * 1_000, **stats)

    first, second = (
        [
            at(kernel, 1000 * i + 400 * gpu, 300, group_id=i, correlation_id=10 * gpu + i + 1)
            for i in range(3)
        ]
        for gpu in (0, 1)
    )
    details = {"memcpy_details": "size:4000000 dest:1 async:1", "edge_name": "edge_7_relu"}
    sent = tuple(at("MemcpyP2P", 1000 * i + 250, 200, **details) for i in range(3))
    marks = [at("train", 1000 * i, 900, step_num=i, _r=1) for i in range(3)]
    copies = Line(name="Stream #14(MemcpyP2P)", id=14, events=sent)
    path = folder / "logs" / "plugins" / "profile" / run / "host.xplane.pb"
    return write(path, gpu(0, first, copies), gpu(1, second), host(marks))


def test_the_text_says_where_the_time_went(advisor, tmp_path):
    recorded(tmp_path)
    ran = advisor("profile", str(tmp_path / "logs"), "-q")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].endswith(
        "plugins/profile/run: TensorFlow profile (XSpace); 2 of 2 devices did something; 2 steps "
        "of 850 µs (by group_id, the first one left out); 2.70 ms in all"
    )
    row = ["GPU:0", "300", "µs", "200", "µs", "(150", "µs)", "400", "µs"]
    assert row in [line.split() for line in lines]
    assert any("GPU:0 → GPU:1, CUDA memcpy PtoP" in line and "12.0 MB" in line for line in lines)
    at = next(i for i, line in enumerate(lines) if line.startswith("edge_7_relu"))
    assert lines[at + 2].startswith("exposed: what receives it computes nothing meanwhile")
    assert "compute is on GPU:0, GPU:1, the busiest for 1.00 times as long as the least" in lines
    assert "0 % of device time is unclassified" in lines


def test_which_run_was_read_of_several_stands_at_the_head(advisor, tmp_path):
    recorded(tmp_path)
    recorded(tmp_path, run="2026_11_22_10_00_00")
    words = ("profile", str(tmp_path / "logs"), "--no-xprof", "-q")
    which = (
        "read was plugins/profile/2026_11_22_10_00_00, the newest of 2 runs; give the folder of "
        "another to read that"
    )
    assert advisor(*words).out.splitlines()[1] == which
    assert json.loads(advisor(*words, "--json").out)["notes"][0] == which
    assert advisor(*words, "--format", "markdown").out.splitlines()[4].startswith("read was ")


def test_xprof_is_asked_on_a_copy_and_contradicted(advisor, tmp_path):
    path = recorded(tmp_path)
    before = path.read_bytes()
    ran = advisor("profile", str(path), "-q")
    assert ran.code == 0, ran.err
    assert "XProf's overview of the same profile: a step of" in ran.out
    assert "device to device 0 ns" in ran.out
    assert "XProf counts PtoP copies as device compute" in ran.out
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before
    assert "XProf" not in advisor("profile", str(path), "-q", "--no-xprof").out


def test_json_is_valid_and_goes_where_it_is_told(advisor, tmp_path):
    path, output = recorded(tmp_path), tmp_path / "profile.json"
    words = ("--json", "--no-xprof", "-q", "-o", str(output))
    ran = advisor("profile", str(path), *words)
    assert (ran.code, ran.out) == (0, "")
    content = told(replace(ran, out=output.read_text()), "profile")
    (route,) = content["routes"]
    assert (route["source"], route["target"], route["count"]) == ("GPU:0", "GPU:1", 3)
    assert route["size_bytes"] == 12_000_000
    assert route["per_step"]["exposed_ns"] == 150_000
    assert content["xprof"] is None


def test_copies_by_way_of_the_host_are_in_every_format(advisor, tmp_path):
    details = {"memcpy_details": "size:4000", "edge_name": "edge_7_relu"}
    copies = (event("MemcpyD2H", 10, 20, **details), event("MemcpyH2D", 20, 30, **details))
    lines = [Line(name="Stream #14(Memcpy)", id=14, events=(copy,)) for copy in copies]
    path = write(tmp_path / "p.xplane.pb", *(gpu(i, line) for i, line in enumerate(lines)))
    words = ("profile", str(path), "--no-xprof", "-q")
    rows = [line.split() for line in advisor(*words).out.splitlines()]
    assert ["GPU:0", "→", "GPU:1", "1", "4.00", "kB"] in rows
    assert sum(row[-1:] == ["DtoH]"] for row in rows) == 1
    assert "## By way of the host" in advisor(*words, "--format", "markdown").out
    content = told(advisor(*words, "--json"), "profile")
    assert content["by_host"] == [
        {"source": "GPU:0", "target": "GPU:1", "count": 1, "of_unknown_size": 0, "size_bytes": 4000}
    ]


def test_a_graph_file_says_whose_tensors_they_are(advisor, tmp_path):
    path, graph = recorded(tmp_path), tmp_path / "step.graph.json.gz"
    relu = Op(name="relu", kind="Relu", layer="dense", output_bytes=(4_000_000,))
    OpGraph([relu], []).save(graph)
    ran = advisor("profile", str(path), "--graph", str(graph), "--no-xprof", "-q")
    assert ran.code == 0, ran.err
    (row,) = (line.split() for line in ran.out.splitlines() if line.startswith("edge_7_relu"))
    assert row[-3:] == ["dense", "4.00", "MB"]
    assert "1 of 1 tensors are in the graph" in ran.out
    assert advisor("profile", str(path), "--graph", "no.json", "-q").code == 2


def test_the_json_has_every_format_that_is_read():
    assert set(get_args(get_type_hints(Profile)["format"])) == set(FileFormat)


def test_markdown_and_json_show_names_as_they_are(advisor, tmp_path):
    path = recorded(tmp_path, kernel="<img onerror=x>|`gemm`")
    ran = advisor("profile", str(path), "--format", "markdown", "--no-xprof", "-q")
    assert ran.code == 0, ran.err
    assert "## Per step" in ran.out
    assert "&lt;img onerror=x&gt;\\|\\`gemm\\`" in ran.out
    assert "<img" not in ran.out
    trace, output = tmp_path / "trace.json", tmp_path / "profile.json"
    event = {"ph": "X", "name": "k\ud800", "cat": "kernel", "ts": 1, "args": {"device": 0}}
    trace.write_text(json.dumps([event]))
    ran = advisor("profile", str(trace), "--json", "-q", "-o", str(output))
    assert ran.code == 0, ran.err
    assert [row["name"] for row in json.loads(output.read_text())["activities"]] == ["k?"]


@pytest.mark.skipif(not REAL.exists(), reason="the real trace is not here")
def test_the_real_trace_computes_on_two_of_eight_gpus(advisor):
    content = told(advisor("profile", str(REAL), "--json", "-q"), "profile")
    busy = [d["name"] for d in content["devices"] if d["in_all"]["compute_ns"]]
    assert busy == ["GPU:4", "GPU:6"]
    counts = {(r["source"], r["target"]): r["count"] for r in content["routes"]}
    to_host = {("GPU:4", "host"): 12, ("GPU:6", "host"): 12}
    from_host = {("host", "GPU:1"): 19, ("host", "GPU:4"): 82, ("host", "GPU:6"): 101}
    assert counts == to_host | from_host
    assert content["xprof"]["compute_ns"] == pytest.approx(14.9e6, rel=0.01)
    assert content["unclassified_share"] == 0
