"""Pipes, devices and files without end in the place of what a command reads: one error at once."""

import os
import shutil

import pytest
from command_runs import run_here
from layer_models import model
from sample_analysis import sample

from placement_advisor.files.contract import json_text
from placement_advisor.files.output import DETAILS, LOG_FOLDER, OVERVIEW
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.report.pictures.layer_layout import layer_map
from placement_advisor.report.tensorboard.tab_data import Overview

GRAPH = "m.graph.json.gz"
PROJECT = """
[tool.advisor]
hardware = "2xV100"
[[tool.advisor.models]]
path = "m.py"
graph = "{graph}"
placement = "{placement}"
"""
OF_SAMPLE = json_text(Overview.of(sample(), layer_map(OpGraph((), ()))))
READS = {
    "graph": "graph {file}.graph.json.gz",
    "placement-of-graph": f"graph {GRAPH} --placement {{file}}.json --format mermaid",
    "cluster": f"search {GRAPH} --hardware {{file}}.toml",
    "search": "search {file}.json",
    "settings": "check --config {file}.toml",
    "lock": "check --graphs-only --config lock/pyproject.toml",
    "checked-graph": "check --graphs-only --config graph/pyproject.toml",
    "checked-placement": "check --graphs-only --config placement/pyproject.toml",
    "overview": "report {file}-overview",
    "details": "report {file}-details",
    "profile": "profile {file}.xplane.pb",
    "run": "profile run",
    "chrome-trace": "profile {file}.json",
    "packed-trace": "profile {file}.json.gz",
    "nvprof": "profile {file}.txt",
    "costs": "analyze m.py --hardware 2xV100 --costs {file}.xplane.pb",
    "costs-of-run": "analyze m.py --hardware 2xV100 --costs run",
    "analysis": "show analysis",
    "full-text": "show -v analysis",
    "compared": "diff analysis analysis",
    "model": "analyze {file}.py --no-run",
    "keras": "trace {file}.keras",
    "frozen": "trace {file}.pb",
}


@pytest.fixture(params=["pipe", "device"])
def folder(request, tmp_path, monkeypatch):
    """The current folder, with pipes, or links to a device, under all names."""
    monkeypatch.chdir(tmp_path)
    model("in1 -> a", "in2 -> b", "a b -> dot").save(tmp_path / GRAPH)
    (tmp_path / "m.py").touch()
    for name in ("lock", "graph", "placement", "run", "analysis"):
        (tmp_path / name).mkdir()
        words = {"graph": GRAPH, "placement": "single", name: "special.json"}
        (tmp_path / name / "pyproject.toml").write_text(PROJECT.format(**words))
        shutil.copy(GRAPH, tmp_path / name)
    suffixes = (".graph.json.gz", ".json", ".json.gz", ".toml", ".xplane.pb", ".txt", ".py")
    specials = [f"special{suffix}" for suffix in (*suffixes, ".keras", ".pb")]
    specials += [f"{name}/special.json" for name in ("graph", "placement")]
    specials += ["run/special.xplane.pb", "lock/placements.lock.json"]
    specials += ["analysis/analysis.json", "analysis/report.txt"]
    for name, file in (("overview", OVERVIEW), ("details", f"{DETAILS}/towers.json")):
        specials.append(f"special-{name}/{LOG_FOLDER}/{file}")
        (tmp_path / specials[-1]).parent.mkdir(parents=True)
    overview = tmp_path / "special-details" / LOG_FOLDER / OVERVIEW
    overview.write_text(OF_SAMPLE)
    for name in specials:
        if request.param == "pipe":
            os.mkfifo(name)
        else:
            (tmp_path / name).symlink_to("/dev/zero")


# Whoever opens a pipe without care waits for ever.
@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", READS)
def test_what_is_no_plain_file_is_refused_at_once(folder, what):
    ran = run_here(*READS[what].format(file="special").split())
    said = ran.out + ran.err
    assert ran.code == 2, said
    assert "not a file" in said
    assert "special" in said or "lock" in said or "analysis/" in said
    assert "Traceback" not in said
